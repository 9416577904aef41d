//! The screen: a line on the daemon, the table of services, the endpoints of one of them, a line of keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row as TableRow, Table};

use super::data::{Data, Endpoint, Port, Row, count, rate};
use super::state::State;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, state: &mut State) {
    let details = if state.open().is_some() { 12 } else { 0 };
    let [head, table, below, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Min(3),
        Constraint::Max(details),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(summary(state)), head);
    services(frame, state, table);
    if details > 0 {
        endpoints(frame, state, below);
    }
    frame.render_widget(Paragraph::new(bottom(state)), keys);
}

fn summary(state: &State) -> Vec<Line<'static>> {
    let Data {
        overview, services, ..
    } = state.data();
    let health = if let Some(why) = state.why_lost() {
        Span::from(format!("no answer: {why}")).red()
    } else if overview.health.ok {
        Span::from("healthy").green()
    } else {
        Span::from(format!(
            "not healthy: {}",
            overview.health.reasons.join("; ")
        ))
        .red()
    };
    let sync = overview.syncs.last.as_ref().map_or_else(
        || "no sync yet".to_owned(),
        |sync| format!("last sync {:.1} ms ({})", sync.milliseconds, sync.kind),
    );
    let age = overview
        .data_age_seconds
        .map(|age| format!("  data {age:.0} s old"))
        .unwrap_or_default();
    let (counts, totals) = (&overview.counts, &overview.syncs.totals);
    let troubled = counts.partly + counts.down;
    vec![
        Line::from(vec![
            Span::from(overview.node.clone()).bold(),
            Span::from(format!("  {}  ", overview.mode)),
            health,
            Span::from(format!("  {sync}{age}")),
        ]),
        Line::from(vec![
            Span::from(format!(
                "{} of {} services, {} endpoints",
                services.matched, services.total, counts.endpoints
            )),
            Span::from(format!("  {troubled} troubled")).style(if troubled > 0 {
                Color::Yellow
            } else {
                Color::Reset
            }),
            Span::from(format!(
                "  {} repaired, {} failed",
                totals.repaired, totals.failed
            )),
            Span::from(if services.counting {
                ""
            } else {
                "  this mode does not count connections"
            }),
        ]),
    ]
}

fn services(frame: &mut Frame<'_>, state: &mut State, area: Rect) {
    let sorted = state.sort().trim_start_matches('-').to_owned();
    let head = |title: &'static str, column: &str| {
        let style = if column == sorted {
            Style::new().bold()
        } else {
            Style::new().dim()
        };
        Cell::from(title).style(style)
    };
    let heads = TableRow::new([
        head("SERVICE", "name"),
        head("TYPE", ""),
        head("ADDRESS", ""),
        head("ENDPOINTS", "endpoints"),
        head("CONN/S", "rate"),
        head("CONNECTIONS", "connections"),
        head("REFUSED", "refused"),
    ]);
    let rows: Vec<TableRow<'_>> = state.data().services.rows.iter().map(service).collect();
    let widths = [
        Constraint::Fill(3),
        Constraint::Length(12),
        Constraint::Fill(2),
        Constraint::Length(9),
        Constraint::Length(8),
        Constraint::Length(11),
        Constraint::Length(8),
    ];
    let table = Table::new(rows, widths)
        .header(heads)
        .row_highlight_style(Modifier::REVERSED);
    frame.render_stateful_widget(table, area, &mut state.table);
}

fn service(row: &Row) -> TableRow<'static> {
    let colour = match row.state.as_str() {
        "down" => Color::Red,
        "partly" => Color::Yellow,
        _ => Color::Reset,
    };
    let number = |text: String| Cell::from(Line::from(text).right_aligned());
    TableRow::new([
        Cell::from(row.key()).style(colour),
        Cell::from(row.kind().to_owned()),
        Cell::from(row.at()),
        number(row.endpoints()),
        number(rate(row.per_second)),
        number(count(row.connections)),
        number(count(row.refused)),
    ])
}

fn endpoints(frame: &mut Frame<'_>, state: &State, area: Rect) {
    let title = format!(" {} ", state.open().unwrap_or_default());
    let block = Block::bordered().title(title);
    let ports = state
        .data()
        .service
        .as_ref()
        .map_or(&[][..], |service| &service.ports);
    let rows: Vec<TableRow<'_>> = ports.iter().flat_map(of_port).collect();
    let widths = [
        Constraint::Fill(2),
        Constraint::Fill(1),
        Constraint::Length(21),
        Constraint::Length(8),
        Constraint::Length(11),
        Constraint::Fill(2),
    ];
    let heads = [
        "  ENDPOINT",
        "NODE",
        "SHARE",
        "CONN/S",
        "CONNECTIONS",
        "WHY",
    ];
    let table = Table::new(rows, widths)
        .header(TableRow::new(heads).style(Style::new().dim()))
        .block(block);
    frame.render_widget(table, area);
}

fn of_port(port: &Port) -> Vec<TableRow<'static>> {
    let name = if port.name.is_empty() {
        "port"
    } else {
        &port.name
    };
    // There is room for little more than two words.
    let policies = if port.internal_policy == port.external_policy {
        format!("policy {}", port.internal_policy)
    } else {
        format!(
            "{}, external {}",
            port.internal_policy, port.external_policy
        )
    };
    let head = format!("{name}/{} {}", port.protocol, port.family);
    let mut rows = vec![
        TableRow::new([&*head, "", "", "", "", &policies].map(str::to_owned))
            .style(Style::new().bold()),
    ];
    rows.extend(port.endpoints.iter().map(endpoint));
    rows
}

fn endpoint(endpoint: &Endpoint) -> TableRow<'static> {
    let Endpoint { cluster, local, .. } = endpoint;
    let share = match (cluster.r#in, local.r#in) {
        (true, false) => format!("{:.1} %", 100.0 * cluster.share),
        (true, true) => format!(
            "{:.1} %, local {:.0} %",
            100.0 * cluster.share,
            100.0 * local.share
        ),
        (false, true) => format!("local {:.0} %", 100.0 * local.share),
        (false, false) => "out".to_owned(),
    };
    let is_in = cluster.r#in || local.r#in;
    let reason = if local.r#in && !cluster.r#in {
        &local.reason
    } else {
        &cluster.reason
    };
    let number = |text: String| Cell::from(Line::from(text).right_aligned());
    TableRow::new([
        Cell::from(format!("  {}", endpoint.address)),
        Cell::from(endpoint.node.clone().unwrap_or_else(|| "-".to_owned())),
        Cell::from(share),
        number(rate(endpoint.per_second)),
        number(count(endpoint.connections)),
        Cell::from(reason.clone()),
    ])
    .style(if is_in {
        Style::new()
    } else {
        Style::new().dim()
    })
}

fn bottom(state: &State) -> Line<'static> {
    if let Some(text) = state.typing() {
        return Line::from(format!("filter: {text}\u{2588}"));
    }
    let filter = match state.filter() {
        "" => String::new(),
        filter => format!("  filter: {filter}"),
    };
    let keys = "q quit  / filter  s sort  r reverse  Enter endpoints  Esc back";
    Line::from(format!("{keys}  sorted by {}{filter}", state.sort())).dim()
}
