//! What is thrown at the daemon, one after the other.

use std::time::{Duration, Instant};

use ferrovia_lab::apiserver::{End, Fault, Interference, Kind, Target, Verb, sample};

use crate::churn;
use crate::model::Trouble;
use crate::objects::NODE;
use crate::scene::Scene;
use crate::stage::Limits;
use crate::{Mode, Options};

/// What 10,000 Services must do with.
const MEMORY: u64 = 256 << 20;
/// Few, but enough for what a daemon needs at all.
const DESCRIPTORS: u32 = 64;
/// Ten years.
const UPTIME: u64 = 10 * 365 * 24 * 3600;
/// The numbers of Services that come all at once begin here, away from the others' addresses.
const AWAY: u32 = 2_000;

/// Something that is thrown.
pub(crate) struct Throw {
    pub(crate) name: &'static str,
    /// Part of the short run, too: what the API server does wrong is tried in other tests as well, and it is waited for ever longer.
    is_short: bool,
    /// Does it, and says what was done.
    pub(crate) act: fn(&Scene<'_>) -> anyhow::Result<String>,
}

impl Throw {
    const fn always(name: &'static str, act: fn(&Scene<'_>) -> anyhow::Result<String>) -> Self {
        Self {
            name,
            is_short: true,
            act,
        }
    }

    const fn if_long(name: &'static str, act: fn(&Scene<'_>) -> anyhow::Result<String>) -> Self {
        Self {
            name,
            is_short: false,
            act,
        }
    }
}

/// From here on it is one and the same daemon, whose growth is measured.
pub(crate) const FIRST_OF_THE_LAST_DAEMON: &str = "foreign flush";

const FAULTS: &[Throw] = &[
    Throw::always("churn", |scene| scene.just_changes()),
    Throw::always("killed", |scene| scene.killed()),
    Throw::always("few descriptors", |scene| scene.few_descriptors()),
    Throw::always("disk full", |scene| scene.disk_full()),
    Throw::always("clock", |scene| scene.clock()),
    Throw::always("little memory, many objects", |scene| scene.little_memory()),
    Throw::always(FIRST_OF_THE_LAST_DAEMON, |scene| scene.foreign_flush()),
    Throw::always("foreign damage", |scene| scene.foreign_damage()),
    Throw::always("API away", |scene| scene.api_away()),
    Throw::if_long("API forgets", |scene| scene.api_forgets()),
    Throw::if_long("API refuses", |scene| scene.api_refuses()),
    Throw::always("API slow", |scene| scene.api_slow()),
    Throw::if_long("API nonsense", |scene| scene.api_nonsense()),
    Throw::always("everything changed back", |scene| scene.calm()),
];

/// Those that are to be thrown.
pub(crate) fn chosen(options: &Options) -> impl Iterator<Item = &'static Throw> {
    FAULTS.iter().filter(|fault| {
        let only = options.only.as_ref();
        let is_named = only.is_none_or(|only| fault.name.contains(only.as_str()));
        is_named && (options.is_long || fault.is_short)
    })
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

    /// Starts the daemon anew with limits, lets it work under them, and starts it without.
    fn limited(
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

    fn clock(&self) -> anyhow::Result<String> {
        self.limited(Limits::Uptime(UPTIME), || {
            self.wait(1);
            Ok("started on a machine that is up for ten years".to_owned())
        })
    }

    fn little_memory(&self) -> anyhow::Result<String> {
        let size = self.options.size;
        self.limited(Limits::Memory(MEMORY), || {
            let numbers = AWAY..AWAY + size.services;
            let objects = |number| [sample::service(number), sample::slice(number, size.endpoints)];
            // Behind all that comes at once, other changes have to wait.
            self.model.begin(Trouble::Behind);
            self.stage
                .api
                .apply_many(numbers.clone().flat_map(objects))?;
            let came = self.settle()?;
            let peak = self.stage.usage()?.peak;
            self.stage.restart(Limits::Memory(MEMORY))?;
            let started = self.settle()?;
            let peak = peak.max(self.stage.usage()?.peak) >> 10;
            for number in numbers {
                let (service, slice) = (sample::service_name(number), sample::slice(number, 0));
                let slice = slice["metadata"]["name"].as_str().unwrap_or_default();
                let api = &self.stage.api;
                api.delete(Kind::Service, sample::NAMESPACE, &service);
                api.delete(Kind::EndpointSlice, sample::NAMESPACE, slice);
            }
            let went = self.settle()?;
            self.model.end();
            let (services, endpoints) = (size.services, size.services * size.endpoints);
            Ok(format!(
                "{services} Services and {endpoints} endpoints come ({came:.0?}), are there at a start ({started:.0?}), and go \
                 ({went:.0?}), in 256 MiB; {peak} MiB at most"
            ))
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

    fn foreign_flush(&self) -> anyhow::Result<String> {
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
                .inject_times(6, Target::verb(Verb::Watch), Fault::code(code));
        }
        self.stage
            .api
            .inject_times(4, Target::verb(Verb::List), Fault::Reset);
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

    /// As it was in the beginning, so that what is left over would show.
    fn calm(&self) -> anyhow::Result<String> {
        self.churn.pause();
        churn::clear(self.stage);
        Ok(format!(
            "all Services that came are gone again; compared on {NODE}"
        ))
    }
}
