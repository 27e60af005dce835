package labcmd

// This file has the verbs about profiles for guided optimisation.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"millrace/cmd/internal/cli"
	"millrace/lab/pgo"
	"millrace/lab/subject"
)

// PGO is `millrace-lab pgo`: one field for each verb, in the order in which
// they are used.
type PGO struct {
	Record  Record  `cmd:"" help:"Record a CPU profile of a running server."`
	Merge   Merge   `cmd:"" help:"Make one profile of several, each with its weight."`
	Predict Predict `cmd:"" help:"Say what a profile can bring at best, before anybody builds with it."`
	Diff    Diff    `cmd:"" help:"Show what changed from one profile to another."`
	Build   Build   `cmd:"" help:"Build a Go program with a profile, with proof that it was used."`
	Prove   Prove   `cmd:"" help:"Measure whether a build with a profile is faster than one without."`
}

// pgoExamples are those of the verbs here.
func pgoExamples() cli.Examples {
	return cli.Examples{
		"pgo record": {
			"millrace-lab pgo record -o files.pprof                      # of the server that runs here",
			"millrace-lab pgo record 127.0.0.1:6060 -o api.pprof         # of any Go server with net/http/pprof",
			"millrace-lab pgo record --pid 4711 --duration 1m            # without any HTTP route, by SIGUSR2",
		},
		"pgo merge": {
			"millrace-lab pgo merge files.pprof=3 ranges.pprof=1 -o default.pgo",
			"millrace-lab pgo merge --weights default.pgo.weights -o default.pgo",
		},
		"pgo predict": {"millrace-lab pgo predict default.pgo"},
		"pgo diff":    {"millrace-lab pgo diff before.pprof after.pprof --svg diff.svg"},
		"pgo build":   {"millrace-lab pgo build ./cmd/millrace --profile default.pgo -o bin/millrace"},
		"pgo prove": {
			"millrace-lab pgo prove                                      # millrace itself, in a checkout",
			"millrace-lab pgo prove --without ./old --with ./new --args 'serve --port {port}' --path /api",
		},
	}
}

// profileFailure adds to an error what to do about it.
func profileFailure(err error) error {
	hint := ""
	switch missing, absent := errors.AsType[subject.Missing](err); {
	case err == nil:
		return nil
	case absent:
		hint = "install " + missing.Package + ", and see that go is in PATH"
	case errors.Is(err, pgo.ErrBusy):
		hint = "the Go runtime takes one at a time: try again when that one has ended"
	case errors.Is(err, pgo.ErrNoProfiles):
		hint = "of millrace, take the admin address that its banner names; other Go servers need net/http/pprof; or use --pid"
	case errors.Is(err, pgo.ErrEmpty):
		hint = "the server had nothing to do: record while it is under load (millrace-lab load URL)"
	case errors.Is(err, pgo.ErrNotCPU):
		hint = "`millrace-lab pgo record` takes a CPU profile"
	case errors.Is(err, pgo.ErrNoSignal):
		hint = "`millrace serve` does; of other Go servers record over HTTP: millrace-lab pgo record HOST:PORT"
	case errors.Is(err, pgo.ErrNoProof):
		hint = "it was built with another profile or none: see -pgo in GOFLAGS (go env GOFLAGS)"
	case errors.Is(err, fs.ErrPermission):
		hint = "that process or file belongs to somebody else: use its owner's account, or root's"
	}
	if hint == "" {
		return err
	}
	return cli.Failure(err, hint)
}

// replaceFile writes a file so that it is there whole or not at all.
func replaceFile(name string, data []byte) error {
	return writeWhole(name, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

func writeWhole(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if errors.Is(err, fs.ErrNotExist) {
		dir := filepath.Dir(name)
		return cli.Failure(fmt.Errorf("there is no folder %s", dir), "`mkdir -p "+dir+"` makes it")
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	err = write(f)
	if err == nil {
		err = f.Chmod(0o644) // as any file; CreateTemp's is for its owner alone
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it is of no use half written
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// percent is a share for people: 12.3 %.
func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// points is a change of a share, in percentage points.
func points(delta float64) string { return fmt.Sprintf("%+.2f", 100*delta) }
