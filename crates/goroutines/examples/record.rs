//! Records a program and replays it.
use reprise_goroutines::{log::*, process};
fn main() {
    let argv: Vec<_> = std::env::args_os().skip(1).collect();
    let seed = [7; 32];
    let mut ring = Ring::create(1 << 20, &seed).unwrap();
    println!("{:?}", process::built(argv[0].as_ref()));
    let mut child = process::record(argv[0].as_ref(), &argv, &ring).unwrap();
    let mut all = Gatherer::default();
    let status = loop {
        ring.drain(false, |e| all.push(&e)).unwrap();
        if let Some(s) = child.try_wait().unwrap() {
            break s;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    ring.drain(true, |e| all.push(&e)).unwrap();
    println!("{status:?} {} events {} unknown {:?}", all.events(), all.has_end(), ring.unknown_call());
    let log = all.finish(&seed).unwrap();
    let argv: Vec<_> = argv.iter().map(|s| process::string(s).unwrap()).collect();
    let mut env: Vec<_> = std::env::vars_os().map(|(mut k, v)| { k.push("="); k.push(v); process::string(&k).unwrap() }).collect();
    env.retain(|e| !e.as_bytes().starts_with(b"REPRISE_GOROUT"));
    let r = process::Replay { program: std::env::args_os().nth(1).unwrap().as_ref(), argv, env, quiet: false, limit: None }.run(&log);
    println!("replay: {r:?} {:?} consumed {}", log.done(), log.consumed());
}
