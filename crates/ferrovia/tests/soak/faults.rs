//! What is thrown at the daemon, one after the other. What the kernel and the clock do wrong is in `system`, and large clusters are in `many`.

use std::time::{Duration, Instant};

use anyhow::Context;
use ferrovia_lab::apiserver::{End, Fault, FaultTarget, Interference, Kind, Verb};

use crate::churn;
use crate::limits::Limits;
use crate::model::Trouble;
use crate::objects::NODE;
use crate::scene::Scene;
use crate::{Mode, Options};

/// Few, but enough for what a daemon needs at all.
const DESCRIPTORS: u32 = 64;
/// Ten years.
const UPTIME: u64 = 10 * 365 * 24 * 3600;

/// Something that is thrown.
pub(crate) struct Throw {
    pub(crate) name: &'static str,
    when: When,
    /// The mode in which it makes sense, if not in all.
    mode: Option<Mode>,
    /// Does it, and says what was done.
    pub(crate) act: Act,
}

/// Which runs have time for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Always,
    /// Those that are no test: what the API server does wrong is tried in other tests as well, and it is waited for ever longer.
    IfLong,
    /// Those with a large cluster.
    IfBig,
}

type Act = fn(&Scene<'_>) -> anyhow::Result<String>;

impl Throw {
    const fn new(when: When, name: &'static str, act: Act) -> Self {
        Self {
            name,
            when,
            mode: None,
            act,
        }
    }

    const fn always(name: &'static str, act: Act) -> Self {
        Self::new(When::Always, name, act)
    }

    const fn if_long(name: &'static str, act: Act) -> Self {
        Self::new(When::IfLong, name, act)
    }

    const fn if_big(name: &'static str, act: Act) -> Self {
        Self::new(When::IfBig, name, act)
    }

    const fn only_in(self, mode: Mode) -> Self {
        Self {
            mode: Some(mode),
            ..self
        }
    }

    fn is_for(&self, options: &Options) -> bool {
        let has_time = match self.when {
            When::Always => true,
            When::IfLong => options.is_long,
            When::IfBig => options.is_big,
        };
        let only = options.only.as_ref();
        let is_named = only.is_none_or(|only| self.name.contains(only.as_str()));
        let is_for_mode = self.mode.is_none_or(|mode| mode == options.mode);
        has_time && is_named && is_for_mode
    }
}

/// From here on it is one and the same daemon, whose growth is measured.
pub(crate) const FIRST_OF_THE_LAST_DAEMON: &str = "foreign flush";

const FAULTS: &[Throw] = &[
    Throw::always("churn", |scene| scene.just_changes()),
    Throw::always("killed", |scene| scene.killed()),
    Throw::always("few descriptors", |scene| scene.few_descriptors()),
    Throw::always("disk full", |scene| scene.disk_full()),
    Throw::always("long uptime", |scene| scene.long_uptime()),
    Throw::always("clock jumps", |scene| scene.clock_jumps()),
    Throw::always("kernel refuses", |scene| scene.kernel_refuses()),
    Throw::always("little memory", |scene| scene.little_memory()),
    // Through the tools it would take an hour.
    Throw::if_big("many endpoints", |scene| scene.many_endpoints()).only_in(Mode::Nftables),
    Throw::always(FIRST_OF_THE_LAST_DAEMON, |scene| scene.foreign_flush()),
    Throw::always("foreign damage", |scene| scene.foreign_damage()),
    // In the other mode there is no listener.
    Throw::always("news lost", |scene| scene.news_lost()).only_in(Mode::Nftables),
    Throw::always("addresses unread", |scene| scene.addresses_unread()),
    Throw::if_long("system calls fail", |scene| scene.calls_fail()),
    Throw::always("conntrack full", |scene| scene.conntrack_full()),
    Throw::always("API away", |scene| scene.api_away()),
    Throw::if_long("API forgets", |scene| scene.api_forgets()),
    Throw::if_long("API refuses", |scene| scene.api_refuses()),
    Throw::always("API slow", |scene| scene.api_slow()),
    Throw::if_long("API nonsense", |scene| scene.api_nonsense()),
    Throw::always("everything changed back", |scene| scene.calm()),
];

/// Those that are to be thrown.
pub(crate) fn chosen(options: &Options) -> impl Iterator<Item = &'static Throw> {
    FAULTS.iter().filter(|fault| fault.is_for(options))
}

impl Scene<'_> {
    fn just_changes(&self) -> anyhow::Result<String> {
        self.churn.take();
        let begin = Instant::now();
        self.wait(1);
        let each_second = f64::from(self.churn.take()) / begin.elapsed().as_secs_f64();
        Ok(format!(
            "{each_second:.0} changes of Services and endpoints a second"
        ))
    }

    fn killed(&self) -> anyhow::Result<String> {
        let times = 3;
        for _ in 0..times {
            self.model.begin(Trouble::Behind);
            self.stage.kill()?;
            self.wait(2 * times);
            self.stage.start(Limits::None)?;
            self.settle()?;
            self.model.end();
        }
        Ok(format!("kill -9 and a new start, {times} times"))
    }

    /// Restarts the daemon with limits, lets it work under them, and restarts it without.
    pub(crate) fn limited(
        &self,
        limits: Limits,
        work: impl FnOnce() -> anyhow::Result<String>,
    ) -> anyhow::Result<String> {
        self.model.begin(Trouble::Behind);
        self.stage.restart(limits)?;
        self.settle()?;
        self.model.end();
        let done = work()?;
        self.settle()?;
        self.model.begin(Trouble::Behind);
        self.stage.restart(Limits::None)?;
        Ok(done)
    }

    fn few_descriptors(&self) -> anyhow::Result<String> {
        self.limited(Limits::Descriptors(DESCRIPTORS), || {
            let idle = self.stage.idle_connections(200)?;
            self.wait(1);
            self.settle()?;
            let (most, idle) = (DESCRIPTORS, idle.len());
            Ok(format!(
                "{most} descriptors, {idle} clients that connect and say nothing"
            ))
        })
    }

    fn disk_full(&self) -> anyhow::Result<String> {
        self.limited(Limits::FullDisk, || {
            self.wait(1);
            Ok("no room for the log and for temporary files".to_owned())
        })
    }

    fn long_uptime(&self) -> anyhow::Result<String> {
        self.limited(Limits::Uptime(UPTIME), || {
            self.wait(1);
            Ok("started on a machine that is up for ten years".to_owned())
        })
    }

    /// Takes our rules away several times, each time after they have come back.
    fn bare(&self, damage: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<String> {
        const TIMES: u32 = 4;
        for _ in 0..TIMES {
            self.model.begin(Trouble::Bare);
            damage()?;
            self.settle()?;
            self.model.end();
            self.wait(2 * TIMES);
        }
        self.model.begin(Trouble::Bare);
        damage()?;
        Ok(format!("{} times", TIMES + 1))
    }

    pub(crate) fn foreign_flush(&self) -> anyhow::Result<String> {
        let stage = self.stage;
        let (what, times) = match self.options.mode {
            Mode::Nftables => {
                let flush = || stage.on_node("nft", &["flush", "ruleset"]);
                ("nft flush ruleset", self.bare(flush)?)
            }
            Mode::Iptables => {
                let flush = || {
                    for table in ["nat", "filter"] {
                        stage.on_node("iptables-nft", &["-w", "60", "-t", table, "-F"])?;
                        stage.on_node("ip6tables-nft", &["-w", "60", "-t", table, "-F"])?;
                    }
                    Ok(())
                };
                ("iptables -F of both tables", self.bare(flush)?)
            }
        };
        Ok(format!("{what}, {times}"))
    }

    fn foreign_damage(&self) -> anyhow::Result<String> {
        self.model.begin(Trouble::Bare);
        match self.options.mode {
            Mode::Nftables => {
                let delete = ["delete", "table", "ip", "ferrovia"];
                self.stage.on_node("nft", &delete)?;
                let flush = ["flush", "table", "ip6", "ferrovia"];
                self.stage.on_node("nft", &flush)?;
                Ok("one table deleted, the other one emptied".to_owned())
            }
            Mode::Iptables => {
                let delete = ["-w", "60", "-t", "nat", "-D", "PREROUTING", "1"];
                self.stage.on_node("iptables-nft", &delete)?;
                let flush = ["-w", "60", "-t", "nat", "-F", "KUBE-SERVICES"];
                self.stage.on_node("ip6tables-nft", &flush)?;
                Ok("a jump deleted, a chain emptied".to_owned())
            }
        }
    }

    fn api_away(&self) -> anyhow::Result<String> {
        self.model.begin(Trouble::Behind);
        self.stage.api.refuse_connections(true)?;
        self.stage.api.reset_connections();
        self.wait(1);
        self.stage.api.refuse_connections(false)?;
        Ok(format!(
            "connections reset and refused for {:.0?}",
            self.each
        ))
    }

    fn api_forgets(&self) -> anyhow::Result<String> {
        self.model.begin(Trouble::Behind);
        self.stage.api.refuse_connections(true)?;
        self.stage.api.reset_connections();
        self.wait(2);
        self.stage.api.compact();
        self.stage.api.refuse_connections(false)?;
        Ok("away, and then all history is gone (410)".to_owned())
    }

    fn api_refuses(&self) -> anyhow::Result<String> {
        self.model.begin(Trouble::Behind);
        for code in [
            http::StatusCode::INTERNAL_SERVER_ERROR,
            http::StatusCode::TOO_MANY_REQUESTS,
        ] {
            self.stage
                .api
                .inject_times(6, FaultTarget::verb(Verb::Watch), Fault::code(code));
        }
        self.stage
            .api
            .inject_times(4, FaultTarget::verb(Verb::List), Fault::Reset);
        for kind in [Kind::Service, Kind::EndpointSlice] {
            self.stage.api.end_watches(kind, End::Abort);
        }
        self.wait(2);
        self.stage.api.heal()?;
        Ok("watches end, and are refused with 500 and 429".to_owned())
    }

    fn api_slow(&self) -> anyhow::Result<String> {
        self.model.begin(Trouble::Behind);
        let drip = Interference::Drip {
            bytes: 2_000,
            every: Duration::from_millis(50),
        };
        self.stage.api.interfere(drip);
        self.wait(1);
        self.stage.api.heal()?;
        Ok("answers drip, 40 kB a second".to_owned())
    }

    fn api_nonsense(&self) -> anyhow::Result<String> {
        self.model.begin(Trouble::Behind);
        for round in 0..5 {
            for kind in [Kind::Service, Kind::EndpointSlice, Kind::Node] {
                let nonsense = format!(
                    "{{\"type\":\"ADDED\",\"object\":{{\"spec\":{round}}}}}\n\0\u{ff}{{]\n"
                );
                self.stage.api.write_to_watches(kind, nonsense);
            }
            self.stage.api.go_away();
            self.stage.api.reset_in_next_write();
            self.wait(5);
        }
        Ok("garbage in watches, GOAWAY, lines cut in half".to_owned())
    }

    /// As it was in the beginning, so that what is left over shows.
    fn calm(&self) -> anyhow::Result<String> {
        self.churn.pause();
        churn::clear(self.stage);
        self.model.as_in_the_beginning(&self.stage.api)?;
        let (before, mut now) = (self.objects, 0);
        let gone = self.stage.until("nothing is left over", || {
            now = self.stage.kernel_objects()?;
            Ok(now <= before)
        });
        gone.with_context(|| format!("{now} objects in the kernel instead of {before}"))?;
        Ok(format!(
            "all Services that came are gone again, and {now} lines of rules left of {before}; compared on {NODE}"
        ))
    }
}
