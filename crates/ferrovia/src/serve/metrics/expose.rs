//! The page of all series: what is known only when somebody asks is looked up, then everything is written.

use std::fmt;
use std::sync::PoisonError;

use ferrovia_host::survey::flows;

use super::process::Usage;
use super::series::Expose;
use super::{Connections, Metrics};
use crate::version::{KUBERNETES, KUBERNETES_MAJOR_MINOR, platform};

impl Metrics {
    /// Writes every series as text. May wait for the kernel, and for `out`; nobody waits for it.
    ///
    /// # Errors
    /// If `out` fails.
    pub fn expose(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        self.read_process();
        self.read_flows();
        if let Some(read) = self.of_mode.get() {
            read.lock().unwrap_or_else(PoisonError::into_inner)(self);
        }
        let connections = self.read_connections();
        let mut text = String::new();
        for family in self.all.families() {
            text.clear();
            family.expose(&mut text);
            out.write_str(&text)?;
        }
        connections.map_or(Ok(()), |connections| connections.expose(out))?;
        self.proxies
            .get()
            .map_or(Ok(()), |proxies| proxies.expose(out))
    }

    /// Writes the page of service level indicators.
    pub fn expose_slis(&self, text: &mut String) {
        self.slis.expose(text);
        self.read_process();
        self.all.process_start.expose(text);
    }

    fn read_connections(&self) -> Option<Connections> {
        let reader = self.connections.get()?;
        let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut connections = Connections::new(reader.limit);
        if let Err(error) = (reader.read)(&mut connections) {
            tracing::debug!(%error, "cannot read the kernel's counts of connections");
            self.all.connections_unread.update([], |n| n.add(1));
            return None;
        }
        let omitted = connections.omitted() as f64;
        self.all.connections_omitted.update([], |n| n.set(omitted));
        Some(connections)
    }

    fn read_process(&self) {
        let usage = Usage::read();
        if let Some(cpu) = usage.cpu {
            self.all.process_cpu.update([], |total| total.set(cpu));
        }
        let gauges = [
            (&self.all.process_fds, usage.fds),
            (&self.all.process_max_fds, usage.max_fds),
            (&self.all.process_resident, usage.resident),
            (&self.all.process_virtual, usage.virtual_memory),
            (&self.all.process_max_virtual, usage.max_virtual),
            (&self.all.process_start, self.started),
        ];
        for (gauge, value) in gauges {
            if let Some(value) = value {
                gauge.update([], |gauge| gauge.set(value));
            }
        }
    }

    /// How full connection tracking's table is. Where nothing is tracked there is nothing in it.
    fn read_flows(&self) {
        let (flows, limit) = flows::fill().unwrap_or_default();
        let all = &self.all;
        for (gauge, value) in [
            (&all.conntrack_flows, flows),
            (&all.conntrack_flows_limit, limit),
        ] {
            gauge.update([], |gauge| gauge.set(value as f64));
        }
        let totals = flows::totals().unwrap_or_default();
        for (reason, total) in [
            ("insert_failed", totals.insert_failed),
            ("dropped", totals.dropped),
            ("early_dropped", totals.early_dropped),
        ] {
            let failures = &all.conntrack_failures;
            failures.update([reason], |n| n.set(total as f64));
        }
    }

    /// Says what runs, once and for all.
    pub(super) fn describe_build(&self, mode: &str) {
        let (major, minor) = KUBERNETES_MAJOR_MINOR;
        let platform = platform();
        let labels = ["", "rustc", "", "", KUBERNETES, "", major, minor, &platform];
        self.all.build.update(labels, |one| one.set(1.0));
        self.all
            .ferrovia_build
            .update([mode, env!("CARGO_PKG_VERSION")], |one| one.set(1.0));
    }
}
