use ferrovia_lab::Folder;

use super::*;

fn kubeconfig(user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: here\n\
         contexts: [{{name: here, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://192.0.2.1:6443'}}}}]\n\
         users: [{{name: u, user: {user}}}]\n"
    )
}

fn open(path: PathBuf, master: Option<&str>) -> Result<Opened, AccessError> {
    let access = ApiAccess {
        kubeconfig: Some(path),
        master: master.map(str::to_owned),
        ..ApiAccess::default()
    };
    access.open(Duration::from_secs(30))
}

fn refusal(path: PathBuf) -> String {
    match open(path, None) {
        Ok(_) => panic!("it was taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_master_address_wins_over_the_kubeconfigs() {
    let folder = Folder::new();
    let path = folder.write("kubeconfig", &kubeconfig("{token: abc}"));
    let given = open(path.clone(), None).unwrap().config.cluster_url;
    assert_eq!(given.to_string(), "https://192.0.2.1:6443/");
    let overridden = open(path, Some("https://192.0.2.2:443")).unwrap();
    assert_eq!(
        overridden.config.cluster_url.to_string(),
        "https://192.0.2.2:443/"
    );
}

#[test]
fn a_master_address_is_enough() {
    let access = |master: &str| {
        let access = ApiAccess {
            master: Some(master.to_owned()),
            ..ApiAccess::default()
        };
        access
            .open(Duration::ZERO)
            .map(|opened| opened.config.cluster_url.to_string())
    };
    assert_eq!(access("127.0.0.1:8080").unwrap(), "http://127.0.0.1:8080/");
    assert_eq!(
        access("https://[2001:db8::1]:6443").unwrap(),
        "https://[2001:db8::1]:6443/"
    );
    for bad in ["", "ftp://host", "https://", "a b"] {
        let error = access(bad).unwrap_err().to_string();
        assert!(error.starts_with(&format!("--master {bad}: ")), "{error}");
    }
}

#[test]
fn a_token_file_is_read_without_its_line_break_and_watched() {
    let folder = Folder::new();
    folder.write("token", "abc\n");
    let path = folder.write("kubeconfig", &kubeconfig("{token: old, tokenFile: token}"));
    let opened = open(path, None).unwrap();
    assert!(opened.config.auth_info.token_file.is_none());
    assert!(opened.config.auth_info.token.is_some());
    let before = opened.files.fingerprint();
    assert_eq!(opened.files.fingerprint(), before);
    folder.write("token", "def\n");
    assert_ne!(opened.files.fingerprint(), before);
}

#[test]
fn errors_name_the_file_and_the_field() {
    let folder = Folder::new();
    let cases = [
        (
            "current-context: there\n",
            "current-context: there is no context of the name \"there\"",
        ),
        ("kind: Config\n", "current-context: is not set"),
        (
            "current-context: a\ncontexts: [{name: a, context: {cluster: b}}]\n",
            "contexts[].context.cluster: there is no cluster of the name \"b\"",
        ),
    ];
    for (text, expected) in cases {
        let path = folder.write("kubeconfig", text);
        let error = refusal(path.clone());
        assert_eq!(error, format!("kubeconfig {}: {expected}", path.display()));
    }
    let missing = refusal(folder.join("nowhere"));
    assert!(
        missing.contains("nowhere") && missing.contains("cannot be read"),
        "{missing}"
    );
    let path = folder.write("kubeconfig", &kubeconfig("{tokenFile: gone}"));
    assert!(refusal(path).contains("/gone cannot be read"));
}

#[test]
fn a_broken_kubeconfig_is_not_quoted() {
    let folder = Folder::new();
    for text in [
        "users:\n- name: u\n  user: {token: S3CRET, token: S3CRET}\n",
        "users: S3CRET\n",
        "users:\n- name: u\n  user:\n    token: S3CRET\n   x: [\n",
    ] {
        let error = refusal(folder.write("kubeconfig", text));
        assert!(!error.contains("S3CRET"), "{error}");
        assert!(error.contains("is not a kubeconfig (line "), "{error}");
    }
}

#[test]
fn outside_a_cluster_the_error_says_what_to_give() {
    // Tests do not run in a pod; if they do, there is nothing to see here.
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return;
    }
    let Err(error) = ApiAccess::default().open(Duration::ZERO) else {
        panic!("this is no pod");
    };
    assert!(
        error
            .to_string()
            .starts_with("neither a kubeconfig nor a master address")
    );
}

#[test]
fn an_authority_without_a_certificate_is_refused() {
    let folder = Folder::new();
    let with = |cluster: &str| kubeconfig("{}").replace("6443'", &format!("6443', {cluster}"));
    for content in ["", "nonsense"] {
        folder.write("ca.crt", content);
        let path = folder.write("kubeconfig", &with("certificate-authority: ca.crt"));
        let said = refusal(path);
        assert!(
            said.contains("certificate-authority") && said.contains("ca.crt"),
            "{said}"
        );
    }
    // "nonsense"
    let data = with("certificate-authority-data: bm9uc2Vuc2U=");
    let said = refusal(folder.write("kubeconfig", &data));
    assert!(said.contains("certificate-authority"), "{said}");
}
