//! Watches: what they send, and when.

use ferrovia_lab::apiserver::{ApiServer, Options, sample};
use serde_json::Value;

use crate::client::get;

#[test]
fn a_streaming_list_sends_all_there_is_and_then_what_changes() {
    let server = ApiServer::start(Options::default()).unwrap();
    server.apply_many((0..500).map(sample::service)).unwrap();
    let target = "/api/v1/services?watch=true&sendInitialEvents=true&allowWatchBookmarks=true\
                  &resourceVersionMatch=NotOlderThan";
    let mut watch = get(&server, target);
    assert_eq!(watch.status, 200);
    for number in 0..500 {
        let (kind, name, _) = watch.short_event();
        assert_eq!(
            (kind.as_str(), name),
            ("ADDED", sample::service_name(number))
        );
    }
    let (kind, bookmark) = watch.event();
    assert_eq!(kind, "BOOKMARK");
    let metadata = &bookmark["metadata"];
    assert_eq!(metadata["resourceVersion"], server.revision().to_string());
    assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(bookmark["kind"], "Service");
    assert_eq!(metadata["name"], Value::Null);

    let revision = server.apply(sample::service(7)).unwrap();
    let name = sample::service_name(7);
    assert_eq!(watch.short_event(), ("MODIFIED".into(), name, revision));
}
