//! Writes the overlay for the installed Go into a directory: for those who work on the edits.
fn main() {
    let mut args = std::env::args().skip(1);
    let (version, goroot, dir) = (args.next().unwrap(), args.next().unwrap(), args.next().unwrap());
    let version = reprise_goroutines::overlay::Version::named(&version).unwrap();
    match version.write(goroot.as_ref(), dir.as_ref()) {
        Ok(path) => println!("{}", path.display()),
        Err(e) => println!("{e}"),
    }
}
