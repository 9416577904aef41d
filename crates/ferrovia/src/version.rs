//! The release of kube-proxy that this program behaves like: the one place that names it. And the machine it was built for, in the words of
//! Kubernetes.

/// Its version, as Kubernetes writes it.
pub const KUBERNETES: &str = "v1.36.4";

/// Major and minor number, as labels and pages have them.
pub const KUBERNETES_MAJOR_MINOR: (&str, &str) = ("1", "36");

/// The platform this was built for, such as `linux/amd64`.
pub(crate) fn platform() -> String {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("linux/{architecture}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_of_one_release() {
        let (major, minor) = KUBERNETES_MAJOR_MINOR;
        assert!(KUBERNETES.starts_with(&format!("v{major}.{minor}.")));
    }
}
