package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"millrace/lab/record"
	"millrace/lab/subject"
	"millrace/lab/trial"
)

// startTime is how long a server may take until it listens: eight may start at once
// on two cores, four of them in Python.
const startTime = 20 * time.Second

// errNoConfig is why a server is not measured outside of a checkout.
var errNoConfig = errors.New("its config is in millrace's repository, lab/bench/peers: run this in a checkout")

// A launch is an arm whose program was found.
type launch struct {
	Arm
	exe, version string
	args         []string
}

// placeholder is a name in a command.
var placeholder = regexp.MustCompile(`{([a-z][a-z0-9]*)}`)

// expand fills names in braces. One that is not known stays.
func expand(text string, fields map[string]string) string {
	return placeholder.ReplaceAllStringFunc(text, func(name string) string {
		for field, value := range fields {
			if strings.EqualFold(field, name[1:len(name)-1]) {
				return value
			}
		}
		return name
	})
}

// nginxArgs are behind the nginx of a command.
const nginxArgs = "-p {dir} -e {dir}/error.log -c {config}" // -e: it opens a log before it has read where that should be

// launch finds an arm's program.
func (r *Run) launch(ctx context.Context, a Arm) (l launch, err error) {
	words := strings.Fields(a.Run)
	l = launch{Arm: a, args: words[1:]}
	switch program := words[0]; {
	case r.Missing[program] != nil:
		err = r.Missing[program]
	case program == "millrace":
		if l.exe = r.Env.Millrace; l.exe == "" {
			return l, ErrNoMillrace
		}
		l.version = subject.GoVersion(l.exe, "")
	case program == "nginx":
		l.exe, l.version, err = subject.Nginx(ctx)
		l.args = append(strings.Fields(nginxArgs), l.args...)
	case r.Programs.has(program):
		if l.exe, err = r.Programs.Path(program); err == nil {
			l.version = subject.GoVersion(l.exe, a.Module)
		}
	case r.Tools[program] != "":
		l.exe = r.Tools[program]
	default:
		l.exe, err = subject.Look(program, a.Package)
		if err == nil && len(a.Version) > 0 {
			l.version = subject.Version(ctx, l.exe, a.Version[0])
			for _, before := range a.Version[1:] {
				_, l.version, _ = strings.Cut(l.version, before)
				l.version, _, _ = strings.Cut(l.version, " ")
			}
		}
	}
	if err == nil && a.With != "" {
		_, err = subject.Look(a.With, a.Package)
	}
	if err == nil && a.Config+a.In != "" && r.Env.Bench == nil {
		err = errNoConfig
	}
	return l, err
}

// shown is a launch's command in a report, with a place that stands for any.
func (l launch) shown() []string {
	command := filepath.Base(l.exe) + " " + strings.Join(l.args, " ")
	command = strings.NewReplacer("{address}", "127.0.0.1:PORT", "{second}", "127.0.0.1:PORT2").Replace(command)
	return strings.Fields(placeholder.ReplaceAllStringFunc(command, func(name string) string {
		return strings.ToUpper(strings.Trim(name, "{}"))
	}))
}

// A Command makes a command as exec.Command does it.
type Command func(string, ...string) *exec.Cmd

// Start starts the server of an arm, and asks it once for what it is asked for: so
// that what it does once for each (opening, compressing) is not charged to the first
// slot.
func (r *Run) Start(ctx context.Context, arm string) (*trial.Instance, error) {
	in, err := r.StartWith(ctx, arm, nil, nil)
	if err != nil || len(r.Spec.Probe) == 0 {
		return in, err
	}
	if err := r.look(ctx, arm, in); err != nil {
		return nil, errors.Join(err, in.Stop())
	}
	return in, nil
}

// StartWith starts the server of an arm with other fields, and a command that is
// made otherwise; nil: as always.
func (r *Run) StartWith(ctx context.Context, arm string, fields map[string]string, command Command) (*trial.Instance, error) {
	l, err := r.armLaunch(ctx, arm, fields)
	if err != nil {
		return nil, err
	}
	return r.start(ctx, l, command)
}

// start runs a server at a new place.
func (r *Run) start(ctx context.Context, l launch, command Command) (*trial.Instance, error) {
	if command == nil {
		command = exec.Command
	}
	return subject.Retry(ctx, func() (*trial.Instance, error) {
		fields, args, leave, err := r.ready(l)
		if err != nil {
			return nil, err
		}
		await := fields["Address"]
		if l.Socket {
			await = "unix:" + fields["Socket"]
		}
		cmd := command(l.exe, args...)
		for _, e := range l.Env {
			if cmd.Env == nil {
				cmd.Env = os.Environ()
			}
			cmd.Env = append(cmd.Env, expand(e, fields))
		}
		if l.In != "" {
			cmd.Dir = filepath.Join(r.Env.Bench.Dir, l.In)
		}
		process, err := subject.Start(ctx, cmd, await, startTime)
		if err != nil {
			return nil, errors.Join(err, leave())
		}
		in := &trial.Instance{
			URL:  map[string]string{"": "http://" + fields["Address"] + "/", "address": fields["Address"]},
			PIDs: []int{process.PID},
			Stop: func() error { return errors.Join(process.Stop(), leave()) },
		}
		if l.Socket {
			in.URL["unix"] = await
		}
		for name, url := range l.URL {
			in.URL[name] = expand(url, fields)
		}
		return in, nil
	})
}

// ready makes a place for a server, with its config: the fields, the arguments of its
// command, and what removes all that it wrote, which may be large.
func (r *Run) ready(l launch) (fields map[string]string, args []string, leave func() error, err error) {
	if fields, err = r.place(l); err != nil {
		return nil, nil, nil, err
	}
	leave = func() error { return errors.Join(os.RemoveAll(fields["Dir"]), removeAll(fields["Memory"])) }
	if err := l.configure(r, fields); err != nil {
		return nil, nil, nil, errors.Join(err, leave())
	}
	for _, a := range l.args {
		if a = expand(a, fields); a != "" {
			args = append(args, a)
		}
	}
	return fields, args, leave, nil
}

// Ready is an arm's command, with more fields, at a place of its own, where a server
// will listen, and what removes the place.
func (r *Run) Ready(ctx context.Context, arm string, fields map[string]string) (cmd *exec.Cmd, address string, leave func() error, err error) {
	l, err := r.armLaunch(ctx, arm, fields)
	if err != nil {
		return nil, "", nil, err
	}
	at, args, leave, err := r.ready(l)
	if err != nil {
		return nil, "", nil, err
	}
	return exec.CommandContext(ctx, l.exe, args...), at["Address"], leave, nil
}

// armLaunch finds the program of an arm, which has more fields.
func (r *Run) armLaunch(ctx context.Context, arm string, fields map[string]string) (launch, error) {
	for _, a := range r.Spec.Arms {
		if a.Name != arm {
			continue
		}
		l, err := r.launch(ctx, a)
		l.Fields = map[string]string{}
		maps.Copy(l.Fields, a.Fields)
		maps.Copy(l.Fields, fields)
		return l, err
	}
	return launch{}, fmt.Errorf("there is no arm %q", arm)
}

// place makes a place for a server: its fields.
func (r *Run) place(l launch) (map[string]string, error) {
	dir := filepath.Join(r.Env.Work, strconv.FormatInt(r.places.Add(1), 10))
	if err := os.Mkdir(dir, 0o755); err != nil { // nginx's workers may have another account
		return nil, fmt.Errorf("making a folder for the server: %w", err)
	}
	address, err := subject.FreeAddress()
	second, secondErr := subject.FreeAddress()
	if err := errors.Join(err, secondErr); err != nil {
		return nil, err
	}
	fields := map[string]string{
		"Site": r.Site, "Dir": dir, "Config": filepath.Join(dir, "config"), "Address": address, "Second": second, "Socket": filepath.Join(dir, "s"),
		"User": "", "Log": "", "Memory": "",
	}
	fields["Host"], fields["Port"], _ = net.SplitHostPort(address)
	_, fields["SecondPort"], _ = net.SplitHostPort(second)
	if os.Geteuid() == 0 {
		fields["User"] = "root" // else its workers could not enter a private folder
	}
	if l.Memory {
		if fields["Memory"], err = inMemory(); err != nil {
			return nil, err
		}
	}
	maps.Copy(fields, r.Fields)
	given := map[string]string{}
	for name, value := range l.Fields {
		given[name] = expand(value, fields)
	}
	maps.Copy(fields, given)
	return fields, nil
}

// configure writes a server's config.
func (l launch) configure(r *Run, fields map[string]string) error {
	var err error
	switch {
	case l.Text != "":
		err = os.WriteFile(fields["Config"], []byte(expand(l.Text, fields)), 0o600)
	case strings.HasPrefix(l.Config, "nginx/"):
		delete(fields, "NoLog")
		fields["Config"] = filepath.Join(fields["Dir"], "nginx.conf")
		err = subject.WriteNginxConfig(fields["Dir"], filepath.Join(r.Env.Bench.Dir, "peers", l.Config), fields)
	case l.Config != "":
		err = subject.WriteConfig(fields["Config"], filepath.Join(r.Env.Bench.Dir, "peers", l.Config), fields)
	}
	if err != nil {
		return fmt.Errorf("writing the config of %s: %w", l.Name, err)
	}
	return nil
}

// inMemory makes a folder in Linux's file system in memory, or among temporary
// files where there is none.
func inMemory() (string, error) {
	parent := "/dev/shm"
	if info, err := os.Stat(parent); err != nil || !info.IsDir() {
		parent = ""
	}
	dir, err := os.MkdirTemp(parent, "millrace-lab-")
	if err != nil {
		return "", fmt.Errorf("making a folder for the server: %w", err)
	}
	return dir, nil
}

// removeAll removes a folder, where there is one.
func removeAll(dir string) error {
	if dir == "" {
		return nil
	}
	return os.RemoveAll(dir)
}

// Alone starts a server of an arm that has done nothing before, and stops it when
// do has returned.
func (r *Run) Alone(ctx context.Context, arm string, do func(in *trial.Instance, target *record.Target) error) (err error) {
	in, err := r.StartWith(ctx, arm, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Stop()) }()
	target, err := record.Open(in.PIDs...)
	if err != nil {
		return err
	}
	defer target.Close() //nolint:errcheck // only read from: nothing is lost
	return do(in, target)
}
