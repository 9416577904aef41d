//! Long lists.

use ferrovia_lab::apiserver::{ApiServerOptions, Kind, WatchListSupport, sample};

use super::support::{Source, lists, server};

/// Objects in a batch, at most: what one read brings.
const TOGETHER: usize = 200;

#[test]
fn fifty_megabytes_come_in_small_batches() {
    for style in [WatchListSupport::Served, WatchListSupport::Forbidden] {
        let server = server(ApiServerOptions {
            watch_lists: style,
            ..ApiServerOptions::default()
        });
        // 10,000 Services of 5 kB.
        let padding = "x".repeat(4 * 1024);
        let padded = (0..10_000).map(|number| {
            let mut service = sample::service(number);
            service["metadata"]["annotations"]["padding"] = padding.as_str().into();
            service
        });
        server.apply_many(padded).unwrap();
        let source = Source::listed(&server);
        let (objects, largest) =
            source.read(|received| (received.objects.len(), received.largest_batch));
        assert_eq!(objects, 10_000);
        assert!(largest <= TOGETHER, "{largest} at once");

        server.delete(Kind::Service, sample::NAMESPACE, &sample::service_name(77));
        source.wait(|received| received.objects.len() == 9_999);
        let first_lists = 1 + usize::from(style == WatchListSupport::Forbidden);
        assert_eq!(lists(&server, "services"), first_lists);
    }
}
