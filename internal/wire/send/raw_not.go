//go:build !linux || race

package send

// Raw says whether sockets are best written by raw system calls.
const Raw = false
