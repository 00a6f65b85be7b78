//! rslock as a peer: see redlock_peers.py for the lines that it reads and writes.

use rslock::{Lock, LockError, LockManager};
use std::io::BufRead;
use std::time::Duration;

struct Peer {
    manager: LockManager,
    held: Option<Lock>,
}

impl Peer {
    async fn run(&mut self, words: &[&str]) -> Result<&'static str, LockError> {
        let ttl = words
            .last()
            .and_then(|w| w.parse().ok())
            .map(Duration::from_millis);
        match (words[0], ttl, &self.held) {
            ("lock", Some(ttl), _) => match self.manager.lock(words[1].as_bytes(), ttl).await {
                Ok(lock) => {
                    self.held = Some(lock);
                    Ok("held")
                }
                Err(LockError::Unavailable) => Ok("refused"),
                Err(e) => Err(e),
            },
            ("extend", Some(ttl), Some(lock)) => match self.manager.extend(lock, ttl).await {
                Ok(longer) => {
                    self.held = Some(longer);
                    Ok("held")
                }
                Err(LockError::Unavailable) => Ok("lost"),
                Err(e) => Err(e),
            },
            (_, _, Some(lock)) => {
                self.manager.unlock(lock).await;
                Ok("done") // it does not tell
            }
            _ => Ok("nothing is held"),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let addresses = std::env::args().nth(1).unwrap_or_default();
    let urls: Vec<String> = addresses.split(',').map(|a| format!("redis://{a}")).collect();
    let mut manager = LockManager::new(urls);
    manager.set_retry(1, Duration::from_millis(1));
    let mut peer = Peer { manager, held: None };
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match peer.run(&words).await {
            Ok(answer) => println!("{answer}"),
            Err(e) => println!("error {}", e.to_string().replace('\n', " ")),
        }
    }
}
