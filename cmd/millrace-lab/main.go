// Millrace-lab measures servers, not only Millrace.
//
//	millrace-lab load http://127.0.0.1:8080/      one server under load
//	millrace-lab compare A=http://… B='./server -listen 127.0.0.1:{port}'
//	millrace-lab list                             the experiments that come with it
//	millrace-lab run embed-vs-disk                one of them
//	millrace-lab report result.json               what was measured before
//	millrace-lab pgo prove                        is a profile-guided build faster?
//
// The exit status is 0 when it measured, 1 when it could not, when the result is void
// or a requirement is not met, and 2 when the command line itself is wrong.
package main

import (
	"os"

	"millrace/cmd/internal/cli"
	"millrace/cmd/internal/labcmd"
)

func main() { os.Exit(labcmd.Main(os.Args[1:], cli.Streams{Out: os.Stdout, Err: os.Stderr})) }
