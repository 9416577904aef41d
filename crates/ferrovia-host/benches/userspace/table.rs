//! Figures as a table: a column for each way, ratios to the direct one, and the goal.

/// What a figure of the engine is to be.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// At least this part of the direct figure.
    OfDirect(f64),
}

impl Goal {
    fn text(self) -> String {
        match self {
            Self::AtLeast(figure) => format!("≥ {}", show(figure)),
            Self::AtMost(figure) => format!("≤ {}", show(figure)),
            Self::OfDirect(part) => format!("≥ {:.0} % of direct", part * 100.0),
        }
    }

    fn is_met(self, engine: f64, direct: Option<f64>) -> bool {
        match self {
            Self::AtLeast(figure) => engine >= figure,
            Self::AtMost(figure) => engine <= figure,
            Self::OfDirect(part) => direct.is_some_and(|direct| engine >= part * direct),
        }
    }
}

/// How wide the columns are: a name, three figures, two ratios; the goal is last.
const WIDTHS: [usize; 6] = [34, 10, 10, 10, 14, 12];

/// Prints the head.
pub(crate) fn head(ways: [&str; 3]) {
    let [direct, plain, engine] = ways.map(str::to_owned);
    let ratios = [format!("{engine}/{direct}"), format!("{engine}/copy")];
    let [to_direct, to_plain] = ratios;
    let cells = [String::new(), direct, plain, engine, to_direct, to_plain];
    print(cells, "goal");
}

/// Prints a row as soon as it is known: the figures of the three ways, the engine's last.
pub(crate) fn row(name: &str, unit: &str, goal: Goal, figures: [Option<f64>; 3]) {
    let [direct, plain, engine] = figures;
    let ratio = |to: Option<f64>| match (engine, to) {
        (Some(engine), Some(to)) if to > 0.0 => format!("{:.2}", engine / to),
        _ => String::new(),
    };
    let met = engine.is_some_and(|engine| goal.is_met(engine, direct));
    let verdict = if met { "met" } else { "missed" };
    let figure = |figure: Option<f64>| figure.map_or_else(String::new, show);
    let cells = [
        format!("{name}, {unit}"),
        figure(direct),
        figure(plain),
        figure(engine),
        ratio(direct),
        ratio(plain),
    ];
    print(cells, &format!("{}, {verdict}", goal.text()));
}

fn print(cells: [String; 6], goal: &str) {
    let [name, numbers @ ..] = cells;
    let mut line = format!("{name:<0$}", WIDTHS[0]);
    for (cell, width) in numbers.iter().zip(&WIDTHS[1..]) {
        line += &format!("{cell:>width$}");
    }
    println!("{line}  {goal}");
}

fn show(figure: f64) -> String {
    match figure.abs() {
        1000.0.. => format!("{figure:.0}"),
        10.0.. => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}
