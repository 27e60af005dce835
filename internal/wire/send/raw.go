//go:build linux && !race

package send

// Raw says whether to write to sockets by raw system calls. Not under the race detector: to it
// bytes through a socket are synchronisation, if package syscall sends them, and it does
// not see raw calls.
const Raw = true
