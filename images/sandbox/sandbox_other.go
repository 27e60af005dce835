//go:build !linux

package sandbox

import "syscall"

// absent is the reason where the system has nothing of the kind.
const absent = "this system has no such thing"

// Namespaces are the ways to start a child, the best first; here there is one.
func Namespaces() []*syscall.SysProcAttr { return []*syscall.SysProcAttr{{}} }

// Refused is never the case here.
func Refused(error) bool { return false }

// NetworkID names the network that this process is in; nothing here.
func NetworkID() string { return "" }

// Conceal does nothing here.
func Conceal() Measure { return Measure{Concealed, absent} }

// Enter does nothing here.
func Enter(Needs) Report {
	var r Report
	for _, name := range []string{Privileges, NoCaps, Files, Sockets, Peeking, Network} {
		r = append(r, Measure{name, absent})
	}
	return r
}

// KeepRights does nothing here.
func KeepRights() {}
