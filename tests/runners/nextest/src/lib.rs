//! One test that passes, one that fails, one that hangs.

#[test]
fn adds() {
    assert_eq!([1, 2].iter().sum::<i32>(), 3);
}

#[test]
fn adds_wrongly() {
    assert_eq!([1, 2].iter().sum::<i32>(), 4);
}

#[test]
fn hangs() {
    let (_sender, receiver) = std::sync::mpsc::channel::<i32>();
    receiver.recv().expect("a number");
}
