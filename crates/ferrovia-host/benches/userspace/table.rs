//! Figures as a table: a column for each way, ratios to the direct one, and the goal.

/// What a figure of the engine is to be.
#[derive(Clone, Copy)]
pub(crate) struct Goal {
    bound: Bound,
    scale: Scale,
}

#[derive(Clone, Copy)]
enum Bound {
    None,
    AtLeast(f64),
    AtMost(f64),
}

/// How a goal that was set on another machine is brought to this one.
#[derive(Clone, Copy)]
enum Scale {
    /// It holds anywhere.
    Fixed,
    /// The direct figure was this: the goal is a ratio to it.
    Direct(f64),
    /// The direct rate was this: what something costs is to be so much less as this machine does more.
    DirectRate(f64),
}

impl Goal {
    pub(crate) fn none() -> Self {
        Self::new(Bound::None)
    }

    pub(crate) fn at_least(figure: f64) -> Self {
        Self::new(Bound::AtLeast(figure))
    }

    pub(crate) fn at_most(figure: f64) -> Self {
        Self::new(Bound::AtMost(figure))
    }

    pub(crate) fn where_direct(mut self, figure: f64) -> Self {
        self.scale = Scale::Direct(figure);
        self
    }

    pub(crate) fn where_direct_rate(mut self, rate: f64) -> Self {
        self.scale = Scale::DirectRate(rate);
        self
    }

    fn new(bound: Bound) -> Self {
        let scale = Scale::Fixed;
        Self { bound, scale }
    }

    /// The goal as it was set, as it is here, and whether it is met here.
    fn judge(self, engine: Option<f64>, direct: Option<f64>) -> String {
        let (sign, bound) = match self.bound {
            Bound::None => return String::new(),
            Bound::AtLeast(bound) => ('≥', bound),
            Bound::AtMost(bound) => ('≤', bound),
        };
        let (here, text) = match (self.scale, direct) {
            (Scale::Direct(there), Some(direct)) => {
                let ratio = bound / there;
                (ratio * direct, format!(", {sign} {ratio:.2} of direct"))
            }
            (Scale::DirectRate(there), Some(direct)) => {
                let here = bound * there / direct;
                (here, format!(", here {sign} {}", show(here)))
            }
            _ => (bound, String::new()),
        };
        let met = engine.is_some_and(|engine| match self.bound {
            Bound::AtMost(_) => engine <= here,
            _ => engine >= here,
        });
        let verdict = if met { "met" } else { "missed" };
        format!("{sign} {}{text}: {verdict}", show(bound))
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

/// Prints a row as soon as it is known: the figures of the three ways, the engine's last. The goal is brought to this machine by what
/// direct work achieved on it.
pub(crate) fn row(
    name: &str,
    unit: &str,
    goal: &Goal,
    figures: [Option<f64>; 3],
    achieved: Option<f64>,
) {
    let [direct, plain, engine] = figures;
    let ratio = |to: Option<f64>| match (engine, to) {
        (Some(engine), Some(to)) if to > 0.0 => format!("{:.2}", engine / to),
        _ => String::new(),
    };
    let figure = |figure: Option<f64>| figure.map_or_else(String::new, show);
    let title = [name, unit].join(if unit.is_empty() { "" } else { ", " });
    let cells = [
        title,
        figure(direct),
        figure(plain),
        figure(engine),
        ratio(direct),
        ratio(plain),
    ];
    print(cells, &goal.judge(engine, achieved));
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
