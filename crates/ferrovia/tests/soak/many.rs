//! Clusters that become large all of a sudden.

use std::time::Instant;

use anyhow::bail;
use ferrovia_lab::apiserver::{Kind, sample};

use crate::Mode;
use crate::limits::Limits;
use crate::model::Trouble;
use crate::scene::Scene;

/// What 10,000 Services must do with, even if they have 250,000 endpoints.
const MEMORY_MIB: u64 = 256;
/// The numbers of Services that come begin here, away from the others' addresses.
const AWAY: u32 = 2_000;

/// How much comes.
#[derive(Clone, Copy, Debug)]
struct Size {
    services: u32,
    /// Endpoints of each.
    endpoints: u32,
}

impl Scene<'_> {
    pub(crate) fn little_memory(&self) -> anyhow::Result<String> {
        let is_large = self.options.is_big && self.options.mode == Mode::Nftables;
        let services = if is_large { 10_000 } else { 500 };
        let endpoints = 5;
        self.come_and_go(Size {
            services,
            endpoints,
        })
    }

    pub(crate) fn many_endpoints(&self) -> anyhow::Result<String> {
        let size = Size {
            services: 10_000,
            endpoints: 25,
        };
        self.come_and_go(size)
    }

    fn come_and_go(&self, size: Size) -> anyhow::Result<String> {
        let Size {
            services,
            endpoints,
        } = size;
        let limits = Limits::Memory(MEMORY_MIB << 20);
        self.limited(limits, || {
            let numbers = AWAY..AWAY + services;
            let objects = |number| [sample::service(number), sample::slice(number, endpoints)];
            // Behind all that comes at once, other changes have to wait.
            self.model.begin(Trouble::Behind);
            let api = &self.stage.api;
            api.apply_many(numbers.clone().flat_map(objects))?;
            let came = self.settle()?;
            let peak = self.stage.usage()?.peak;
            self.stage.restart(limits)?;
            let started = self.settle()?;
            let peak = peak.max(self.stage.usage()?.peak) >> 10;
            let with_kernel = self.stage.memory_peak()? >> 20;
            for number in numbers {
                let (service, slice) = (sample::service_name(number), sample::slice(number, 0));
                let slice = slice["metadata"]["name"].as_str().unwrap_or_default();
                api.delete(Kind::Service, sample::NAMESPACE, &service);
                api.delete(Kind::EndpointSlice, sample::NAMESPACE, slice);
            }
            let begin = Instant::now();
            self.settle()?;
            // Services and endpoints are told apart, so that one change has effect does not mean that all have.
            if let Some(words) = self.compare()? {
                bail!(words);
            }
            let went = begin.elapsed();
            self.model.end();
            let endpoints = services * endpoints;
            Ok(format!(
                "{services} Services and {endpoints} endpoints come ({came:.0?}), are there at a start ({started:.0?}), and go \
                 ({went:.0?}), in {MEMORY_MIB} MiB with what the kernel holds for it; {peak} MiB at most, {with_kernel} MiB with the kernel"
            ))
        })
    }
}
