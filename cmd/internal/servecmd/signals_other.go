//go:build !unix

package servecmd

import (
	"errors"
	"os"

	"millrace/cmd/internal/cli"
)

// serverSignals is the one signal there is: Ctrl+C.
func serverSignals() []os.Signal { return []os.Signal{os.Interrupt} }

// raise does what the signal would have done.
func raise(os.Signal) { os.Exit(cli.ExitFailure) }

// hangUp cannot be asked for here.
func hangUp(*os.Process) error { return errors.ErrUnsupported }

func isReload(os.Signal) bool  { return false }
func isReopen(os.Signal) bool  { return false }
func isProfile(os.Signal) bool { return false }
