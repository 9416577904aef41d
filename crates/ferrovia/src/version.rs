//! The release of kube-proxy that this program behaves like: the one place that names it.

/// Its version, as Kubernetes writes it.
pub const KUBERNETES: &str = "v1.36.4";

/// Major and minor number, as labels and pages have them.
pub const KUBERNETES_MAJOR_MINOR: (&str, &str) = ("1", "36");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_of_one_release() {
        let (major, minor) = KUBERNETES_MAJOR_MINOR;
        assert!(KUBERNETES.starts_with(&format!("v{major}.{minor}.")));
    }
}
