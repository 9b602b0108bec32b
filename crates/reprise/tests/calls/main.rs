//! System calls and what else the kernel gives a program, one guest program after the other, and programs of all languages that make them.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod basics;
mod compile;
mod cpuid;
mod cuts;
mod docker_seccomp;
mod each;
mod files;
mod ipc;
mod kernels;
mod languages;
mod memory;
mod rebuilt;
mod sanitizers;
mod signals;
mod stretches;
mod table;
mod threads;
mod uncaptured;
mod waits;
