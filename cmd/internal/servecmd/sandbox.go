package servecmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/internal/config"
	"millrace/internal/engine"
	"millrace/internal/observe/meter"
	"millrace/internal/ops/admin"
	"millrace/internal/process/confine"
	"millrace/internal/process/handover"
	"millrace/internal/upstream/spool"
)

// HelperVerb is what a server starts itself with before it enters the sandbox: see
// package handover. It is not a verb for people.
const HelperVerb = "upgrade-helper"

// Help is that process. Its arguments are the program to start, and that program's
// with what it is called.
func Help(args []string) error {
	const least = 2
	if len(args) < least {
		return errors.New("this is for servers that start themselves anew")
	}
	signals := TakeSignals(nil) // they are for the server, with which this process ends
	defer signals.Release()
	return handover.Help(args[0], args[1:]) //nolint:wrapcheck // it says what was done
}

// sandbox is what this process is confined to. A nil one is nothing.
type sandbox struct {
	options confine.Options
	domain  *confine.Domain // nil: the kernel has none
	missing error           // why
	helper  *handover.Helper
	alone   error // why there is no helper
	held    []*os.File
	rules   atomic.Pointer[[]confine.Rule] // of the config that is served
}

// enterSandbox starts the program of this process anew in the sandbox, and does not
// return from that; or it returns the sandbox that this process is in. cfg is nil
// where there is none, file "" where it comes from none. letGo is called before,
// and what it returns where that has failed.
func enterSandbox(cfg *config.Config, file string, letGo func() (back func())) (*sandbox, error) {
	domain, own, err := confine.Inherited()
	switch {
	case err != nil || cfg == nil:
		return nil, err //nolint:wrapcheck // it says what to do
	case domain == nil && !cfg.Sandbox.On():
		return nil, nil
	}
	b := &sandbox{options: cfg.Sandbox, domain: domain}
	if domain == nil {
		if b.missing = confine.Possible(); b.missing != nil {
			return b, b.refused()
		}
	}
	rules, env, err := reach(cfg, file, domain != nil)
	if err != nil {
		return nil, err
	}
	program, alone := helped(rules, engine.Configs(cfg, file))
	if domain != nil {
		b.rules.Store(&rules)
		b.hold(os.TempDir(), cfg.Buffers.Folder)
		keepNameServers()
		if b.alone = alone; own != nil {
			b.helper, b.alone = handover.NewHelper(own)
		}
		return b, nil
	}
	if alone == nil {
		if own, err = startHelper(program); err != nil {
			return nil, err
		}
	}
	back := letGo()
	b.missing = confine.Enter(rules, own, env...)
	back()
	if own != nil {
		_ = own.Close() // which ends the helper
	}
	return b, b.refused()
}

// reach are the rules for a config, and the variables with which they hold: one
// for the folder for temporary files, which is one of this user alone. confined: they
// are set.
func reach(cfg *config.Config, file string, confined bool) (rules []confine.Rule, env []string, err error) {
	temp := os.TempDir()
	rules = engine.Reach(cfg, file)
	confine.Make(rules)
	if sockets := admin.RuntimeFolder(); os.Getenv(admin.FolderVariable) == "" && filepath.Dir(sockets) == temp {
		env = append(env, admin.FolderVariable+"="+sockets) // it goes by that for temporary files
	}
	if !confined && confine.Broad(temp) {
		if temp, err = admin.PrivateFolder(temp); err != nil {
			return nil, nil, cli.Failure(err, "remove it, or name another one with TMPDIR")
		}
	}
	return append(rules, confine.Rule{Path: temp, Access: confine.Write, For: "temporary files"}), append(env, "TMPDIR="+temp), nil
}

// private has bodies go to a folder of this user alone, unless one is named.
func private(cfg *config.Config) error {
	if !cfg.Sandbox.On() || cfg.Buffers.Folder != "" {
		return nil
	}
	folder, err := admin.PrivateFolder(spool.DefaultFolder())
	if err != nil {
		return cli.Failure(err, "remove it, or name another one with buffers.folder")
	}
	cfg.Buffers.Folder = folder
	return nil
}

// hold keeps what cleans folders of temporary files from removing those in use
// (systemd-tmpfiles, 8): others in their place would be out of reach.
func (b *sandbox) hold(folders ...string) {
	for _, folder := range folders {
		if f, err := os.Open(folder); err == nil {
			lock(f)
			b.held = append(b.held, f)
		}
	}
}

// looking is how often watch looks.
const looking = 10 * time.Second

// maxReported bounds what it reports: of more, each says the same.
const maxReported = 100

// watch tells of files and folders that were replaced by others out of reach, as long as
// there are clients, until the server ends.
func (b *sandbox) watch(ctx context.Context, clients *meter.Presence, s cli.Streams) {
	if b == nil || b.domain == nil {
		return
	}
	reported := map[string]bool{}
	clients.Keep(ctx.Done(), meter.Upkeep{
		Every: func() time.Duration { return looking },
		Turn: func(time.Time) (more bool) {
			for _, r := range b.domain.Beyond(*b.rules.Load()) {
				if !reported[r.Path] && len(reported) < maxReported {
					reported[r.Path] = true
					s.Log(slog.LevelWarn, b.restart("another file or folder has taken the place of "+r.Path+", and the sandbox reaches only the one from the start").Error())
				}
			}
			return false
		},
	})
}

// refused is why a server does not start without a sandbox, nil if it does.
func (b *sandbox) refused() error {
	if b.options.Mode != confine.Require {
		return nil
	}
	return cli.Failure(fmt.Errorf("the sandbox is required, and there is none: %w", b.missing), "`--sandbox auto` takes what there is")
}

// helped returns the program that a helper would start, or why there can be none. A
// process that somebody has taken over must not be able to choose what is started
// outside of the sandbox, by changing the program or its config.
func helped(rules []confine.Rule, configs []string) (string, error) {
	if os.Getpid() == 1 {
		return "", errors.New("this is the first process of a container, which ends with it")
	}
	program, err := calledAs()
	if err != nil {
		return "", fmt.Errorf("finding the program that runs: %w", err)
	}
	for _, trusted := range append([]string{program}, configs...) {
		if trusted, err = filepath.Abs(trusted); err != nil {
			return "", fmt.Errorf("finding the files that an upgrade trusts: %w", err)
		}
		if dir := confine.Writable(rules, trusted); dir != "" {
			return "", fmt.Errorf("the sandbox may write into %s, where %s is: keep them apart", dir, trusted)
		}
	}
	return program, nil
}

func startHelper(program string) (*os.File, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting the helper for upgrades: %w", err)
	}
	return handover.StartHelper(append([]string{self, HelperVerb, program}, os.Args...)) //nolint:wrapcheck // it says what was done
}

// starter starts the successor.
func (b *sandbox) starter(program string) (handover.Starter, error) {
	switch {
	case b == nil || b.domain == nil:
		return handover.Program(program, os.Args), nil
	case b.helper == nil:
		return nil, fmt.Errorf("restart needed: nothing outside of the sandbox can start the new process: %w", b.alone)
	}
	return b.helper.Start, nil
}

// worker is how this program is started to convert images. In the sandbox that is
// the program that runs, also when its file was replaced: no rule is for the new
// one.
func (b *sandbox) worker(command []string) []string {
	if b == nil || b.domain == nil || len(command) == 0 {
		return command
	}
	return append([]string{confine.Running}, command[1:]...)
}

// most is how many paths a message names.
const most = 5

// reaches returns what is to be done about a config that the sandbox does not
// cover. Otherwise it is the one that watch goes by.
func (b *sandbox) reaches(next *config.Config, file string) error {
	switch {
	case b == nil && !next.Sandbox.On():
		return nil
	case b == nil:
		return b.restart("the sandbox begins with the process")
	case !b.options.Same(next.Sandbox):
		return b.restart("what \"sandbox\" says holds for as long as the process lives")
	case b.domain == nil:
		return nil
	}
	var names []string
	rules := engine.Reach(next, file)
	for _, r := range b.domain.Beyond(rules) {
		if name := r.Path + " (" + r.For + ")"; len(names) < most {
			names = append(names, name)
		} else {
			names = append(names[:most], "and more")
		}
	}
	if len(names) == 0 {
		b.rules.Store(&rules)
		return nil
	}
	return b.restart("the sandbox does not reach " + strings.Join(names, ", "))
}

func (b *sandbox) restart(why string) error {
	do := "`millrace upgrade` does it without a lost request"
	if b != nil && b.domain != nil && b.helper == nil {
		do = "end this process and start it again"
	}
	return fmt.Errorf("restart needed: %s: %s", why, do)
}

// explain adds to an error about a file what the sandbox may have to do with it. A
// config's findings have no errors in them, but their texts.
func (b *sandbox) explain(err error) error {
	if b == nil || b.domain == nil || !errors.Is(err, fs.ErrPermission) && !strings.Contains(err.Error(), "permission") {
		return err
	}
	return fmt.Errorf("%w\n%w", err, b.restart("the sandbox does not reach what is new, or has taken the place of another file"))
}

// describe says it for the banner.
func (b *sandbox) describe() string {
	switch {
	case b == nil:
		return ""
	case b.domain == nil:
		return "none: " + b.missing.Error()
	}
	text := fmt.Sprintf("Landlock %d: reads %s, writes %s", b.domain.Version, cli.Count(b.domain.Reads(), "place"), cli.Count(b.domain.Writes(), "place"))
	if b.domain.Scoped {
		text += ", signals none but its own processes"
	}
	if b.alone != nil {
		text += "; no `millrace upgrade`: " + b.alone.Error()
	}
	return text
}
