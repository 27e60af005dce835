package admit

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/wire/netset"
)

// Access says which addresses may ask. Others get 403. It holds for the client
// behind the proxies in limits.trusted_proxies.
type Access struct {
	// Allow are addresses, networks (10.0.0.0/8, 2001:db8::/32) and "unix", for
	// clients of UNIX sockets. If anything is allowed, everybody else is denied.
	Allow []string `yaml:"allow"`
	// Deny are those that are denied, also where Allow has them.
	Deny []string `yaml:"deny"`
	// AllowFiles have more of Allow: one to a line, # begins a comment. They are
	// read again within seconds when they change.
	AllowFiles []string `yaml:"allow_files"`
	// DenyFiles have more of Deny.
	DenyFiles []string `yaml:"deny_files"`
	// Off lets everybody ask, on a route of a site with access.
	Off bool `yaml:"off"`
}

const (
	// maxFile bounds a list: published ones with a million networks have 20 MB.
	maxFile = 64 << 20
	// lookEvery is how often files are looked at.
	lookEvery = 2 * time.Second
)

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Access) Check() map[string]error {
	faults := map[string]error{}
	for key, list := range map[string][]string{"allow": o.Allow, "deny": o.Deny} {
		if _, err := netset.Parse(list); err != nil {
			faults[key] = err
		}
	}
	for key, files := range map[string][]string{"allow_files": o.AllowFiles, "deny_files": o.DenyFiles} {
		if _, _, err := readFiles(files); err != nil {
			faults[key] = err
		}
	}
	if o.Off && (len(o.Allow)+len(o.Deny)+len(o.AllowFiles)+len(o.DenyFiles) > 0) {
		faults["off"] = errors.New("off stands alone: leave the lists out, or off")
	}
	return faults
}

// Lists are the addresses of an [Access], kept up to date with its files.
type Lists struct {
	options Access
	errors  *slog.Logger
	now     atomic.Pointer[sets]
	stop    chan struct{}
	done    sync.WaitGroup
}

type sets struct {
	allow, deny netset.Set
	only        bool // who is not in allow is denied
	stamp       string
}

// Open reads all lists. Close it.
func Open(o Access, errorLog *slog.Logger) (*Lists, error) {
	l := &Lists{options: o, errors: errorLog, stop: make(chan struct{})}
	s, err := o.read()
	if err != nil {
		return nil, err
	}
	l.now.Store(s)
	if len(o.AllowFiles)+len(o.DenyFiles) > 0 {
		l.done.Go(l.watch) // until Close, which waits
	}
	return l, nil
}

// Close ends looking at the files.
func (l *Lists) Close() error {
	close(l.stop)
	l.done.Wait()
	return nil
}

// Allow reports whether a client may ask; the zero address is one of a UNIX socket.
func (l *Lists) Allow(a netip.Addr) bool {
	s := l.now.Load()
	return !s.deny.Has(a) && (!s.only || s.allow.Has(a))
}

func (o Access) read() (*sets, error) {
	allow, one, err := readFiles(o.AllowFiles)
	if err != nil {
		return nil, err
	}
	deny, two, err := readFiles(o.DenyFiles)
	if err != nil {
		return nil, err
	}
	s := &sets{only: len(o.Allow)+len(o.AllowFiles) > 0, stamp: one + two}
	own, err := netset.Parse(o.Allow)
	if err != nil {
		return nil, fmt.Errorf("allow: %w", err)
	}
	s.allow = own.Union(allow)
	if own, err = netset.Parse(o.Deny); err != nil {
		return nil, fmt.Errorf("deny: %w", err)
	}
	s.deny = own.Union(deny)
	return s, nil
}

// watch reads the files again when they have changed. While one cannot be read,
// what was read before holds.
func (l *Lists) watch() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	failed := ""
	for {
		select {
		case <-tick.C:
		case <-l.stop:
			return
		}
		stamp := stampOf(l.options.AllowFiles) + stampOf(l.options.DenyFiles)
		if stamp == l.now.Load().stamp || stamp == failed {
			continue
		}
		s, err := l.options.read()
		if err != nil {
			failed = stamp
			l.errors.Error("a list of addresses has changed and cannot be read; what it was before still holds", "err", err)
			continue
		}
		failed = ""
		l.now.Store(s)
		l.errors.Info("lists of addresses were read again")
	}
}

// stampOf changes when a file does.
func stampOf(files []string) string {
	var b strings.Builder
	for _, name := range files {
		if info, err := os.Stat(name); err == nil {
			fmt.Fprint(&b, info.Size(), info.ModTime().UnixNano(), " ")
		} else {
			b.WriteString("gone ")
		}
	}
	return b.String()
}

// readFiles reads lists of networks. The stamp is from before they were read.
func readFiles(files []string) (netset.Set, string, error) {
	var all []string
	stamp := stampOf(files)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return netset.Set{}, "", fmt.Errorf("a list of addresses: %w", err)
		}
		list, err := parse(name, f)
		if err = cmp.Or(err, f.Close()); err != nil {
			return netset.Set{}, "", err
		}
		all = append(all, list...)
	}
	set, err := netset.Parse(all)
	if err != nil {
		return set, "", fmt.Errorf("a list of addresses: %w", err)
	}
	return set, stamp, nil
}

// parse reads one list: an address or a network to a line, of which what follows
// a space, a # or a ; is a comment.
func parse(name string, from io.Reader) (list []string, err error) {
	lines := bufio.NewScanner(io.LimitReader(from, maxFile+1))
	line, size := 0, 0
	for lines.Scan() {
		line++
		if size += len(lines.Bytes()) + 1; size > maxFile {
			return nil, fmt.Errorf("%s is longer than 64 MiB", name)
		}
		text := lines.Text()
		if i := strings.IndexAny(text, "#;"); i >= 0 {
			text = text[:i]
		}
		word := strings.Fields(text)
		if len(word) == 0 {
			continue
		}
		if len(word) > 1 {
			return nil, fmt.Errorf("%s:%d: %q is more than one address: write one to a line", name, line, text)
		}
		if _, err := netset.Parse(word); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, line, err)
		}
		list = append(list, word[0])
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, line+1, err)
	}
	return list, nil
}
