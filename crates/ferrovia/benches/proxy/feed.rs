//! Other programs, to compare with.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

/// Feeds a text to a program, which must like it; answers with the time until it ended.
pub(crate) fn feed(command: &mut Command, text: &str) -> anyhow::Result<Duration> {
    let program = command.get_program().to_string_lossy().into_owned();
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // Where the tool gave up reading, its own words tell more than the broken pipe.
        let _ = stdin.write_all(text.as_bytes());
    }
    let output = child.wait_with_output()?;
    let took = start.elapsed();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let complaint = stderr.lines().take(2).collect::<Vec<_>>().join(" ");
    ensure!(output.status.success(), "{program}: {complaint}");
    Ok(took)
}
