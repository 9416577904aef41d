//! Which endpoint a client gets: in turn, by weight, or the one it had before; and how long one that does not answer is waited for.
//!
//! Pure: the time is passed in, and endpoints are known by their place in a list.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// How long each attempt to reach an endpoint may take; there are no more attempts than these. As in kube-proxy.
pub(crate) const PATIENCE: [Duration; 4] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
/// How many clients' endpoints one service port remembers. A client chooses its address, with IPv6 from very many, so there is a limit.
const MOST_CLIENTS: usize = 1 << 16;

/// The endpoints of one service port and who got which.
#[derive(Debug, Default)]
pub(crate) struct Balancer {
    candidates: Vec<Candidate>,
    /// All weights are alike, so that taking turns is a matter of counting.
    even: bool,
    next: usize,
    affinity: Option<Duration>,
    clients: HashMap<IpAddr, Chosen>,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    address: SocketAddr,
    weight: u16,
    /// What it has saved up: see [`Balancer::by_weight`].
    credit: i64,
}

#[derive(Clone, Copy, Debug)]
struct Chosen {
    place: usize,
    used: Instant,
}

impl Balancer {
    /// Replaces the endpoints. Clients of those that stay keep them, and those that stay keep their turn.
    pub(crate) fn set_endpoints(&mut self, endpoints: impl Iterator<Item = (SocketAddr, u16)>) {
        let before: HashMap<SocketAddr, usize> = (self.candidates.iter().enumerate())
            .map(|(place, candidate)| (candidate.address, place))
            .collect();
        let mut moved = vec![None; self.candidates.len()];
        let mut candidates = Vec::new();
        for (address, weight) in endpoints {
            let was = before.get(&address);
            if let Some(was) = was {
                moved[*was] = Some(candidates.len());
            }
            let same = was.map(|was| &self.candidates[*was]);
            let credit = same
                .filter(|same| same.weight == weight)
                .map_or(0, |same| same.credit);
            candidates.push(Candidate {
                address,
                weight,
                credit,
            });
        }
        self.clients.retain(|_, chosen| {
            let place = moved.get(chosen.place).copied().flatten();
            chosen.place = place.unwrap_or(chosen.place);
            place.is_some()
        });
        self.even = (candidates.windows(2)).all(|pair| pair[0].weight == pair[1].weight);
        self.candidates = candidates;
    }

    /// Clients return to their endpoint until they have stayed away for so long; without a time they do not.
    pub(crate) fn set_affinity(&mut self, affinity: Option<Duration>) {
        self.affinity = affinity;
        if affinity.is_none() {
            self.clients = HashMap::new();
        }
    }

    /// The place of the endpoint for a client's next connection. Those that were tried for it in vain are chosen again only if there is no
    /// other; that one was tried also ends a client's claim to the endpoint it had.
    pub(crate) fn pick(
        &mut self,
        now: Instant,
        client: IpAddr,
        tried: &[SocketAddr],
    ) -> Option<usize> {
        let Some(limit) = self.affinity else {
            return self.turn(tried);
        };
        if tried.is_empty()
            && let Some(chosen) = self.clients.get_mut(&client)
            && now.saturating_duration_since(chosen.used) < limit
        {
            chosen.used = now;
            return Some(chosen.place);
        }
        let place = self.turn(tried)?;
        self.make_room(now);
        self.clients.insert(client, Chosen { place, used: now });
        Some(place)
    }

    /// Ends a client's claim to its endpoint.
    pub(crate) fn forget(&mut self, client: IpAddr) {
        self.clients.remove(&client);
    }

    fn turn(&mut self, tried: &[SocketAddr]) -> Option<usize> {
        let fresh = |candidate: &Candidate| !tried.contains(&candidate.address);
        let able = |candidate: &Candidate| candidate.weight > 0;
        let choose = if self.even {
            Self::by_count
        } else {
            Self::by_weight
        };
        choose(self, &|candidate| able(candidate) && fresh(candidate))
            .or_else(|| choose(self, &able))
    }

    fn by_count(&mut self, eligible: &dyn Fn(&Candidate) -> bool) -> Option<usize> {
        let count = self.candidates.len();
        let places = (0..count).map(|step| (self.next + step) % count);
        let place = places
            .into_iter()
            .find(|place| eligible(&self.candidates[*place]))?;
        self.next = place + 1;
        Some(place)
    }

    /// At each turn everyone earns its weight, and the richest is chosen and pays what all have earned. So the heavy come often, and evenly
    /// spread rather than in a row.
    fn by_weight(&mut self, eligible: &dyn Fn(&Candidate) -> bool) -> Option<usize> {
        let mut earned = 0;
        let mut richest: Option<usize> = None;
        for place in 0..self.candidates.len() {
            if !eligible(&self.candidates[place]) {
                continue;
            }
            let weight = i64::from(self.candidates[place].weight);
            earned += weight;
            self.candidates[place].credit += weight;
            let credit = self.candidates[place].credit;
            if richest.is_none_or(|other| credit > self.candidates[other].credit) {
                richest = Some(place);
            }
        }
        self.candidates[richest?].credit -= earned;
        richest
    }

    /// Makes room for one more client: those whose time is over go, and if that is not enough, the quarter that stayed away longest.
    fn make_room(&mut self, now: Instant) {
        if self.clients.len() < MOST_CLIENTS {
            return;
        }
        self.expire(now);
        let kept = MOST_CLIENTS / 4 * 3;
        if self.clients.len() > kept {
            let mut times: Vec<Instant> = self.clients.values().map(|chosen| chosen.used).collect();
            let excess = times.len() - kept;
            let (_, oldest, _) = times.select_nth_unstable(excess);
            let oldest = *oldest;
            self.clients.retain(|_, chosen| chosen.used > oldest);
        }
    }

    /// Forgets clients whose time is over.
    fn expire(&mut self, now: Instant) {
        let limit = self.affinity.unwrap_or_default();
        self.clients
            .retain(|_, chosen| now.saturating_duration_since(chosen.used) < limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const BOB: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn address(number: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, number], 80))
    }

    fn balancer(weights: &[u16]) -> Balancer {
        let mut balancer = Balancer::default();
        let endpoints = (0..).map(address).zip(weights.iter().copied());
        balancer.set_endpoints(endpoints);
        balancer
    }

    fn picks(balancer: &mut Balancer, count: usize) -> Vec<usize> {
        let now = Instant::now();
        (0..count)
            .filter_map(|_| balancer.pick(now, ALICE, &[]))
            .collect()
    }

    #[test]
    fn everyone_in_turn() {
        assert_eq!(picks(&mut balancer(&[1, 1, 1]), 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(picks(&mut balancer(&[]), 2), [0_usize; 0]);
    }

    #[test]
    fn the_heavy_come_often_but_not_in_a_row() {
        assert_eq!(picks(&mut balancer(&[5, 1, 1]), 7), [0, 0, 1, 0, 2, 0, 0]);
    }

    #[test]
    fn no_weight_no_turn() {
        assert_eq!(picks(&mut balancer(&[0, 1]), 2), [1, 1]);
        assert_eq!(picks(&mut balancer(&[0, 0]), 1), [0_usize; 0]);
    }

    #[test]
    fn those_tried_in_vain_come_last() {
        let now = Instant::now();
        for weights in [[1, 1, 1], [3, 1, 2]] {
            let mut balancer = balancer(&weights);
            let mut tried = Vec::new();
            for _ in 0..3 {
                let place = balancer.pick(now, ALICE, &tried).unwrap();
                assert!(!tried.contains(&address(place as u8)));
                tried.push(address(place as u8));
            }
            assert!(
                balancer.pick(now, ALICE, &tried).is_some(),
                "there is no other"
            );
        }
    }

    #[test]
    fn a_client_returns_until_it_stayed_away_too_long() {
        let mut balancer = balancer(&[1, 1, 1]);
        balancer.set_affinity(Some(Duration::from_secs(10)));
        let start = Instant::now();
        let first = balancer.pick(start, ALICE, &[]).unwrap();
        assert_ne!(balancer.pick(start, BOB, &[]), Some(first));
        // Each use extends it: 9 + 9 seconds are more than ten.
        for seconds in [9, 18, 27] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(balancer.pick(now, ALICE, &[]), Some(first));
        }
        let late = start + Duration::from_secs(37);
        assert_ne!(balancer.pick(late, ALICE, &[]), Some(first));
    }

    #[test]
    fn a_failed_endpoint_loses_its_clients() {
        let mut balancer = balancer(&[1, 1]);
        balancer.set_affinity(Some(Duration::from_secs(10)));
        let now = Instant::now();
        let first = balancer.pick(now, ALICE, &[]).unwrap();
        let second = balancer.pick(now, ALICE, &[address(first as u8)]).unwrap();
        assert_ne!(first, second);
        assert_eq!(balancer.pick(now, ALICE, &[]), Some(second));
    }

    #[test]
    fn clients_of_endpoints_that_stay_keep_them() {
        let mut balancer = balancer(&[1, 1, 1]);
        balancer.set_affinity(Some(Duration::from_secs(10)));
        let now = Instant::now();
        let alice = balancer.pick(now, ALICE, &[]).unwrap();
        let bob = balancer.pick(now, BOB, &[]).unwrap();
        assert_eq!((alice, bob), (0, 1));
        balancer.set_endpoints([(address(7), 1), (address(1), 1)].into_iter());
        assert_eq!(balancer.pick(now, BOB, &[]), Some(1));
        assert_eq!(balancer.clients.len(), 1, "Alice's endpoint went");
    }

    #[test]
    fn very_many_clients_take_bounded_room() {
        let mut balancer = balancer(&[1, 1]);
        balancer.set_affinity(Some(Duration::from_secs(10)));
        let start = Instant::now();
        for number in 0..(MOST_CLIENTS as u32 * 2) {
            let client = IpAddr::from(number.to_be_bytes());
            let now = start + Duration::from_micros(u64::from(number));
            balancer.pick(now, client, &[]);
            assert!(balancer.clients.len() <= MOST_CLIENTS);
        }
        let newest = IpAddr::from((MOST_CLIENTS as u32 * 2 - 1).to_be_bytes());
        assert!(balancer.clients.contains_key(&newest));
    }
}
