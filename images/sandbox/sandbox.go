// Package sandbox takes away from a process that decodes images what that
// does not need: privileges, files, sockets, and the sight of other processes.
// Whoever takes such a process over with a hostile file is left with a pipe to
// its parent.
//
// Each measure works by itself, and none is required: kernels and containers
// lack some of them. What is in force is found out by trying what is forbidden,
// and reported.
//
// The parent calls Conceal for itself and starts the child with one of
// Namespaces; the child calls Enter before it sees its first image.
package sandbox

import (
	"slices"
	"strings"
)

// The measures, as reports name them.
const (
	Privileges = "no new privileges" // set-user-ID programs and file capabilities give nothing
	NoCaps     = "no capabilities"   // neither its own, nor inherited, nor ambient
	Files      = "no files"          // Landlock: none but the encoders' programs and libraries
	Sockets    = "no sockets"        // seccomp: neither network nor UNIX sockets
	Peeking    = "no tracing"        // seccomp: no ptrace, process_vm_readv and the like
	Network    = "network of its own"
	Concealed  = "the server's memory is closed" // the parent: PR_SET_DUMPABLE is 0
)

// Measure is one, and why it is not in force. An empty Why: it is.
type Measure struct {
	Name string
	Why  string `json:",omitempty"`
}

// Report lists all measures.
type Report []Measure

// InForce are the names of the measures that are.
func (r Report) InForce() string {
	var names []string
	for _, m := range r {
		if m.Why == "" {
			names = append(names, m.Name)
		}
	}
	return strings.Join(names, ", ")
}

// Missing are the measures that are not in force, with the reasons; empty when
// all are.
func (r Report) Missing() string {
	var all []string
	for _, m := range r {
		if m.Why != "" {
			all = append(all, m.Name+" ("+m.Why+")")
		}
	}
	return strings.Join(all, ", ")
}

// Has reports whether a measure is in force.
func (r Report) Has(name string) bool { return slices.Contains(r, Measure{Name: name}) }

// Needs are what a child needs beside its open files.
type Needs struct {
	// Programs are absolute paths of commands that it starts: they and the
	// system's libraries may be read and executed.
	Programs []string
	// Folders may be written to.
	Folders []string
	// Network is NetworkID of the parent.
	Network string
}
