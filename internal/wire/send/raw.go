//go:build linux && !race

package send

// Raw says whether sockets are best written by raw system calls. The race
// detector takes what goes through a socket for synchronisation, as package
// syscall tells it; of raw calls it knows nothing.
const Raw = true
