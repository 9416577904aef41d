//! Figures as pictures: lines over the size of the cluster, and bars side by side. Both axes are logarithmic, since what is compared differs
//! by factors, not by amounts.
//!
//! SVG, in colours that can be told apart on light and dark ground and by people who see fewer of them.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const COLOURS: [&str; 5] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"];
const INK: &str = "#808080";
/// Where the drawing begins and ends, between the labels.
const LEFT: f64 = 70.0;
const TOP: f64 = 50.0;
const FONT: &str = "font-family=\"sans-serif\" font-size=\"13\"";

/// Lines over the number of services.
pub(crate) struct Lines {
    pub(crate) title: &'static str,
    /// What the figures are in, such as "ms".
    pub(crate) unit: &'static str,
    pub(crate) lines: Vec<Line>,
}

/// One line, and its name.
pub(crate) struct Line {
    pub(crate) name: &'static str,
    /// Services, and the figure.
    pub(crate) points: Vec<(f64, f64)>,
}

impl Lines {
    pub(crate) fn svg(&self) -> String {
        const HEIGHT: f64 = 380.0;
        let (right, bottom) = (WIDTH - 200.0, HEIGHT - 50.0);
        let points = || self.lines.iter().flat_map(|line| line.points.iter());
        let across = Scale::over(points().map(|point| point.0), LEFT, right);
        let up = Scale::over(points().map(|point| point.1), bottom, TOP);
        let mut svg = begin(HEIGHT, self.title);
        for tick in across.ticks() {
            let x = across.place(tick);
            line(&mut svg, (x, TOP), (x, bottom), INK, 0.3);
            text(&mut svg, (x, bottom + 20.0), "middle", &thousands(tick));
        }
        text(&mut svg, (right, bottom + 40.0), "end", "services");
        for tick in up.ticks() {
            let y = up.place(tick);
            line(&mut svg, (LEFT, y), (right, y), INK, 0.3);
            let label = format!("{tick} {}", self.unit);
            text(&mut svg, (LEFT - 8.0, y + 4.0), "end", &label);
        }
        for (drawn, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let places = drawn
                .points
                .iter()
                .map(|point| (across.place(point.0), up.place(point.1)));
            let places: Vec<(f64, f64)> = places.collect();
            for ends in places.windows(2) {
                line(&mut svg, ends[0], ends[1], colour, 2.0);
            }
            for (x, y) in &places {
                add(
                    &mut svg,
                    format_args!(
                        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"
                    ),
                );
            }
            if let Some((_, y)) = places.last() {
                text(&mut svg, (right + 10.0, y + 4.0), "start", drawn.name);
            }
        }
        svg + "</svg>\n"
    }
}

/// Bars side by side.
pub(crate) struct Bars {
    pub(crate) title: &'static str,
    pub(crate) bars: Vec<Bar>,
}

/// One bar.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) length: f64,
    /// The figure as people read it.
    pub(crate) label: String,
}

impl Bars {
    pub(crate) fn svg(&self) -> String {
        const ROW: f64 = 30.0;
        const NAMES: f64 = 270.0;
        let height = TOP + ROW * self.bars.len() as f64 + 15.0;
        // A tenth of the shortest is where they begin, so that it can be seen as well.
        let shortest = self.bars.iter().map(|bar| bar.length);
        let shortest = shortest.fold(f64::INFINITY, f64::min);
        let lengths = self.bars.iter().map(|bar| bar.length);
        let scale = Scale::over(lengths.chain([shortest / 10.0]), NAMES, WIDTH - 90.0);
        let mut svg = begin(height, self.title);
        for (row, (bar, colour)) in self.bars.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let y = TOP + ROW * row as f64;
            let width = scale.place(bar.length) - NAMES;
            text(&mut svg, (NAMES - 10.0, y + 15.0), "end", &bar.name);
            add(
                &mut svg,
                format_args!(
                    "<rect x=\"{NAMES}\" y=\"{y}\" width=\"{width:.1}\" height=\"20\" fill=\"{colour}\"/>"
                ),
            );
            let end = (NAMES + width + 8.0, y + 15.0);
            text(&mut svg, end, "start", &bar.label);
        }
        svg + "</svg>\n"
    }
}

/// Powers of ten over a stretch of the picture.
struct Scale {
    /// Exponents of the least and the greatest.
    exponents: (f64, f64),
    stretch: (f64, f64),
}

impl Scale {
    fn over(figures: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let exponents = figures.filter(|figure| *figure > 0.0).map(f64::log10);
        let ends = exponents.fold(None, |ends: Option<(f64, f64)>, exponent| {
            let (least, greatest) = ends.unwrap_or((exponent, exponent));
            Some((least.min(exponent), greatest.max(exponent)))
        });
        let (least, greatest) = ends.unwrap_or((0.0, 0.0));
        let (least, greatest) = (least.floor(), greatest.ceil());
        Self {
            exponents: (least, greatest.max(least + 1.0)),
            stretch: (from, to),
        }
    }

    fn place(&self, figure: f64) -> f64 {
        let (least, greatest) = self.exponents;
        let share = (figure.log10() - least) / (greatest - least);
        self.stretch.0 + share * (self.stretch.1 - self.stretch.0)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (least, greatest) = self.exponents;
        (least as i32..=greatest as i32).map(|exponent| 10f64.powi(exponent))
    }
}

fn begin(height: f64, title: &str) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n"
    );
    add(
        &mut svg,
        format_args!(
            "<text x=\"20\" y=\"26\" font-family=\"sans-serif\" font-size=\"16\" fill=\"{INK}\">{title}</text>"
        ),
    );
    svg
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
    add(
        svg,
        format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>",
            from.0, from.1, to.0, to.1
        ),
    );
}

fn text(svg: &mut String, at: (f64, f64), anchor: &str, words: &str) {
    add(
        svg,
        format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" {FONT} fill=\"{INK}\">{words}</text>",
            at.0, at.1
        ),
    );
}

fn add(svg: &mut String, element: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(svg, "{element}");
}

fn thousands(figure: f64) -> String {
    let digits = format!("{figure:.0}");
    match digits.len().checked_sub(3) {
        Some(split) if split > 0 => format!("{},{}", &digits[..split], &digits[split..]),
        _ => digits,
    }
}
