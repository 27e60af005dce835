//go:build !linux || race

package send

// Raw says whether to write to sockets by raw system calls.
const Raw = false
