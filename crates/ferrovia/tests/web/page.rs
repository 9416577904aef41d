//! The page as people use it. Pictures of it are written to `page` in cargo's folder for temporary files.

use ferrovia_lab::daemon::manifests::{service, web};
use ferrovia_lab::waiting::wait;

use super::browser::Browser;
use super::view::{PAGE, Viewed};

/// The page has no errors and sent requests only to the daemon.
fn was_well_behaved(browser: &Browser) {
    assert_eq!(browser.errors(), Vec::<String>::new());
    let own = format!("http://{PAGE}/");
    let is_elsewhere = |url: &&String| {
        !url.starts_with(&own) && !url.starts_with("data:") && *url != "about:blank"
    };
    let requests = browser.requests();
    assert!(!requests.is_empty());
    assert_eq!(requests.iter().find(is_elsewhere), None);
}

fn open(viewed: &Viewed, hash: &str) -> Browser {
    let mut browser = Browser::start(&viewed.node.world);
    browser.dress(1280, 800, false);
    browser.open(&format!("http://{PAGE}/{hash}"));
    browser.wait_for("document.getElementById('live-text').textContent === 'live'");
    browser
}

#[test]
fn from_the_overview_to_an_endpoint_by_keyboard() {
    let others: Vec<String> = (0..40)
        .map(|i| service(&format!("other{i:02}"), 300 + i, 31000 + i, &["2.10"]))
        .collect();
    let viewed = Viewed::new(&[
        ("web.yaml", &web(&["1.10", "2.10"])),
        ("others.yaml", &others.join("---\n")),
    ]);
    let mut browser = open(&viewed, "");
    browser.wait_for_text("Healthy");
    browser.wait_for_text("41");
    browser.wait_for("document.querySelector('svg[role=img] rect')");
    browser.shot("overview");
    // The slash leads to the search wherever one is.
    browser.press("/");
    browser.wait_for("document.activeElement.id === 'search'");
    browser.type_text("other");
    browser.wait_for_text("40 of 41 services");
    browser.press("Escape");
    browser.wait_for_text("41 services");
    browser.type_text("web");
    browser.wait_for_text("1 of 41 services");
    browser.press("Enter");
    browser.wait_for("document.querySelector('.trow.active')");
    browser.shot("services");
    browser.press("Enter");
    browser.wait_for("location.hash === '#/services/default/web'");
    browser.wait_for_text("10.244.2.10:8080");
    browser.wait_for("document.querySelector('.picture .box')");
    browser.shot("service");
    // Something changes, and the page follows.
    viewed.node.write("web.yaml", &web(&["1.10", "2.11"]));
    browser.wait_for_text("10.244.2.11:8080");
    browser.wait_for("!document.body.innerText.includes('10.244.2.10:8080')");
    browser.press("Escape");
    browser.wait_for("location.hash === '#/services'");
    browser.press("4");
    browser.wait_for(
        "[...document.querySelectorAll('td a')].some((a) => a.textContent === 'default/web')",
    );
    browser.shot("changes");
    was_well_behaved(&browser);
}

#[test]
fn a_packet_is_traced() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["1.10", "2.10"]))]);
    let mut browser = open(&viewed, "#/trace");
    browser.wait_for("document.activeElement.id === 'from'");
    browser.type_text("10.244.1.20");
    browser.press("Tab");
    browser.type_text("10.96.0.10:80/tcp");
    browser.press("Enter");
    browser.wait_for("document.querySelector('#trace-result .pill')");
    let outcome = browser.eval("document.querySelector('#trace-result .pill').textContent");
    assert_eq!(outcome, "delivered");
    browser.wait_for("document.querySelectorAll('#trace-result .box.ok').length === 2");
    browser.shot("trace");
    browser.eval("location.hash = '#/trace?from=nonsense&to=10.96.0.10:80'");
    browser.wait_for_text("is no source");
    browser.eval("location.hash = '#/trace?from=node&to=10.96.0.10:81'");
    browser.wait_for_text("no Service has port 81/tcp there");
    was_well_behaved(&browser);
}

#[test]
fn shows_a_restart_and_reconnects() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["1.10"]))]);
    let mut browser = open(&viewed, "#/services");
    browser.wait_for_text("1 service");
    viewed.node.stop(libc::SIGTERM);
    browser.wait_for_text("The daemon does not answer");
    browser.shot("lost");
    viewed
        .node
        .write("more.yaml", &service("more", 99, 30099, &["2.10"]));
    viewed.start(&[]);
    browser.wait_for_text("The daemon was restarted");
    browser.wait_for_text("2 services");
    was_well_behaved(&browser);
}

#[test]
fn thousands_of_services_are_a_few_rows() {
    let many: Vec<String> = (0..3000)
        .map(|i| service(&format!("s{i:04}"), 300 + i, 0, &["2.10"]).replace(", nodePort: 0", ""))
        .collect();
    let viewed = Viewed::new(&[("many.yaml", &many.join("---\n"))]);
    let mut browser = open(&viewed, "#/services");
    browser.wait_for_text("3,000 services");
    let rows = "document.querySelectorAll('.trow').length";
    browser.wait_for(&format!("{rows} > 5 && {rows} < 80"));
    browser.press("End");
    browser.eval("document.getElementById('services').scrollTop = 1e9");
    browser.wait_for_text("s2999");
    browser.wait_for(&format!("{rows} < 80"));
    for (name, width, height, is_dark) in [
        ("many-dark", 1280, 800, true),
        ("many-phone", 390, 844, false),
        ("many-phone-dark", 390, 844, true),
    ] {
        browser.dress(width, height, is_dark);
        let theme = if is_dark { "dark" } else { "light" };
        browser.wait_for(&format!(
            "document.documentElement.dataset.theme === '{theme}'"
        ));
        // The numbers stay in sight however narrow the window is.
        browser.wait_for("[...document.querySelectorAll('.trow:not([hidden]) .rate span')].some((n) => n.textContent && n.getBoundingClientRect().right <= innerWidth)");
        browser.wait_for("document.documentElement.scrollWidth <= innerWidth");
        browser.shot(name);
    }
    was_well_behaved(&browser);
}

#[test]
fn names_and_problems_of_objects_never_become_markup() {
    let viewed = Viewed::new(&[("web.yaml", &web(&["1.10"]))]);
    viewed.node.write(
        "evil.yaml",
        "kind: Service\napiVersion: v1\nmetadata: { name: evil }\nspec: { clusterIP: 10.96.0.66, externalIPs: ['<img src=x onerror=alert(1)>'], ports: [{ port: 80 }] }\n",
    );
    wait(|| match viewed.try_ask("services/default/evil") {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    });
    let mut browser = open(&viewed, "#/services/default/evil");
    browser.wait_for_text("onerror=alert(1)");
    browser.eval("location.hash = '#/services/%3Cimg%20src=x%3E/b'");
    browser.wait_for_text("there is no service");
    assert_eq!(browser.eval("document.querySelectorAll('img').length"), 0);
    was_well_behaved(&browser);
}
