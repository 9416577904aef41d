use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;

use super::data::Data;
use super::state::{Act, State};
use super::{draw, once};

fn data() -> Data {
    let row = |name: &str, state: &str, per_second: f64| {
        json!({
            "namespace": "shop", "name": name, "types": ["ClusterIP", "NodePort"], "addresses": ["10.96.0.10"], "ports": ["80/tcp"],
            "state": state, "endpoints": { "in": 2, "all": 3 }, "connections": 41, "perSecond": per_second, "refused": 0,
        })
    };
    let overview = json!({
        "node": "node-1", "mode": "nftables", "health": { "ok": true, "reasons": [] }, "dataAgeSeconds": 7.0,
        "counts": { "services": 2, "endpoints": 4, "partly": 0, "down": 1 },
        "syncs": { "last": { "kind": "partial", "milliseconds": 0.42 }, "totals": { "repaired": 0, "failed": 0 } },
    });
    let services = json!({ "matched": 2, "total": 9, "counting": true, "rows": [row("web", "served", 12.3), row("db", "down", 0.0)] });
    let service = json!({ "ports": [{
        "name": "http", "protocol": "tcp", "family": "IPv4", "internalPolicy": "Cluster", "externalPolicy": "Local",
        "endpoints": [
            { "address": "10.244.1.10:8080", "node": "node-1", "cluster": { "in": true, "share": 0.5, "reason": "ready" },
              "local": { "in": true, "share": 1.0, "reason": "ready" }, "connections": 20, "perSecond": 6.1 },
            { "address": "10.244.2.10:8080", "node": null, "cluster": { "in": false, "share": 0.0, "reason": "not ready" },
              "local": { "in": false, "share": 0.0, "reason": "on node node-2, not on this one" }, "connections": 0, "perSecond": 0.0 },
        ],
    }] });
    Data {
        overview: serde_json::from_value(overview).unwrap(),
        services: serde_json::from_value(services).unwrap(),
        service: Some(serde_json::from_value(service).unwrap()),
    }
}

fn screen(state: &mut State) -> String {
    let mut terminal = Terminal::new(TestBackend::new(110, 24)).unwrap();
    terminal.draw(|frame| draw::draw(frame, state)).unwrap();
    terminal.backend().to_string()
}

fn press(state: &mut State, code: KeyCode) -> Act {
    state.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn services_and_endpoints_are_drawn() {
    let mut state = State::new("-rate".into(), String::new());
    state.take(data());
    let text = screen(&mut state);
    for words in [
        "node-1",
        "healthy",
        "0.4 ms",
        "data 7 s old",
        "2 of 9 services",
        "1 troubled",
        "shop/web",
        "2/3",
        "12",
        "sorted by -rate",
    ] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    assert!(!text.contains("10.244.1.10"));
    assert_eq!(press(&mut state, KeyCode::Enter), Act::Ask);
    assert_eq!(state.wanted().service.as_deref(), Some("shop/web"));
    let text = screen(&mut state);
    for words in [
        "10.244.1.10:8080",
        "50.0 %, local 100 %",
        "http/tcp IPv4",
        "external Local",
        "out",
        "not ready",
    ] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    assert_eq!(press(&mut state, KeyCode::Esc), Act::Nothing);
    assert_eq!(state.wanted().service, None);
}

#[test]
fn keys_sort_filter_move_and_end() {
    let mut state = State::new("-rate".into(), String::new());
    state.take(data());
    assert_eq!(press(&mut state, KeyCode::Char('s')), Act::Ask);
    assert_eq!(state.sort(), "-connections");
    press(&mut state, KeyCode::Char('r'));
    assert_eq!(state.sort(), "connections");
    press(&mut state, KeyCode::End);
    press(&mut state, KeyCode::Enter);
    assert_eq!(state.wanted().service.as_deref(), Some("shop/db"));
    press(&mut state, KeyCode::Up);
    assert_eq!(state.wanted().service.as_deref(), Some("shop/web"));
    press(&mut state, KeyCode::Esc);
    for code in [
        KeyCode::Char('/'),
        KeyCode::Char('q'),
        KeyCode::Char('x'),
        KeyCode::Backspace,
    ] {
        assert_eq!(press(&mut state, code), Act::Nothing);
    }
    assert!(screen(&mut state).contains("filter: q"));
    assert_eq!(press(&mut state, KeyCode::Enter), Act::Ask);
    assert_eq!(state.filter(), "q");
    assert_eq!(press(&mut state, KeyCode::Esc), Act::Ask);
    assert_eq!(state.filter(), "");
    assert_eq!(press(&mut state, KeyCode::Char('q')), Act::Quit);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(state.press(interrupt), Act::Quit);
}

#[test]
fn a_daemon_that_went_is_told_and_nothing_is_lost() {
    let mut state = State::new("-rate".into(), String::new());
    state.take(data());
    state.lost("no daemon answers".into());
    let text = screen(&mut state);
    assert!(
        text.contains("no answer: no daemon answers") && text.contains("shop/web"),
        "{text}"
    );
    state.take(Data::default());
    assert!(screen(&mut state).contains("0 of 0 services"));
}

#[test]
fn once_is_a_table() {
    let table = once::table(&data());
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(
        lines[1],
        "shop/web  NodePort  10.96.0.10 80/tcp        2/3      12           41        0"
    );
}
