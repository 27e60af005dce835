package servecmd

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"mime"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"millrace/cmd/internal/cli"
	"millrace/cmd/internal/imagescmd"
	"millrace/internal/config"
	"millrace/internal/engine"
	"millrace/internal/ops/dashboard"
)

// banner is what a server says when it is up: everything listed is open.
type banner struct {
	version  string
	what     Source
	box      *sandbox
	up       Up
	terminal bool
	server   *engine.Server
}

func (b banner) show(s cli.Streams) {
	if s.JSON() {
		s.Log(slog.LevelInfo, "serving", b.attrs()...)
		return
	}
	bold, dim, plain := "", "", ""
	if b.terminal && os.Getenv("NO_COLOR") == "" {
		bold, dim, plain = "\x1b[1m", "\x1b[2m", "\x1b[0m"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%smillrace%s %s %s\n\n", bold, plain, b.version, b.what.Subject(b.up.Config))
	addresses := b.addresses()
	for _, a := range addresses {
		fmt.Fprintf(&out, "  %s%s%s%s\n", bold, a[0], plain, a[1])
	}
	out.WriteByte('\n')
	rows := short(b.rows(), mostLines-1-len(addresses))
	width := 6
	for _, row := range rows {
		width = max(width, len(row[0]))
	}
	for _, row := range rows {
		fmt.Fprintf(&out, "  %s%-*s%s %s\n", dim, width, row[0], plain, row[1])
	}
	out.WriteByte('\n')
	s.Print("%s", out.String()) // in one write
}

const (
	mostLines     = 10 // of text in the banner
	mostAddresses = 3
)

// addresses are those that are open, each with what else there is to say of it.
func (b banner) addresses() (list [][2]string) {
	for _, a := range b.up.URLs {
		also := openAt(a)
		if strings.HasPrefix(a, "https:") && b.up.Config.TLS.HTTP3 {
			also = "  also by HTTP/3" + also
		}
		list = append(list, [2]string{here(a), also})
	}
	if more := len(list) - mostAddresses; more > 0 {
		list[mostAddresses-1] = [2]string{fmt.Sprintf("and %d more", more+1), ""}
		list = list[:mostAddresses]
	}
	if page := b.firstFile(); page != "" {
		list = append(list, [2]string{page, "  is a file here; / is not found without an index.html"})
	}
	return list
}

// short leaves out rows that say least about what is special here, until there are no more
// than n.
func short(rows [][2]string, n int) [][2]string {
	for _, name := range []string{"log", "off", "limits", "images"} {
		if len(rows) > n {
			rows = slices.DeleteFunc(rows, func(row [2]string) bool { return row[0] == name })
		}
	}
	return rows
}

// here is a URL of [engine.Server.Addrs] as a browser on this machine opens it.
func here(addr string) string {
	return strings.NewReplacer("://0.0.0.0:", "://127.0.0.1:", "://[::]:", "://[::1]:").Replace(addr)
}

// openAt says of a URL of [engine.Server.Addrs] where else it is open.
func openAt(addr string) string {
	u, err := url.Parse(addr)
	if err != nil {
		return ""
	}
	families, every := map[string]string{"localhost": "", "0.0.0.0": "IPv4 ", "::": "IPv6 "}[u.Hostname()]
	if !every {
		return ""
	}
	return "  and at every other " + families + "address of this machine"
}

// attrs is the banner for programs.
func (b banner) attrs() []slog.Attr {
	attrs := []slog.Attr{
		slog.String("version", b.version),
		slog.String("what", b.what.Subject(b.up.Config)),
		slog.Any("addresses", b.up.URLs),
		slog.Int("pid", os.Getpid()),
	}
	if page := b.firstFile(); page != "" {
		attrs = append(attrs, slog.String("file", page))
	}
	at := map[string]int{} // rows of one name, and those without one below them, become one attribute
	name := ""
	for _, row := range b.rows() {
		if row[0] != "" {
			name = row[0]
		}
		switch name {
		case "stop", "admin", "dashboard": // pid says it, and what is below
			continue
		}
		if i, ok := at[name]; ok {
			attrs[i] = slog.String(name, attrs[i].Value.String()+"; "+row[1])
			continue
		}
		at[name] = len(attrs)
		attrs = append(attrs, slog.String(name, row[1]))
	}
	return append(attrs, slog.String("admin", b.adminAt()))
}

func (b banner) rows() [][2]string {
	cfg := b.up.Config
	var rows [][2]string
	if b.what.Rows != nil {
		rows = b.what.Rows(b.up)
	}
	if names := named(b.server.Certificates()); names != "" {
		rows = append(rows, [2]string{"names", names})
	}
	rows = append(rows, b.imageRows()...)
	rows = append(rows, [2]string{"limits", b.limits()})
	if text := b.box.describe(); text != "" {
		rows = append(rows, [2]string{"sandbox", text})
	}
	if o := cfg.Log; o.Format != "" && o.Format != config.Off {
		to := "the standard output"
		switch {
		case o.To != "":
			to = o.To
		case o.File != "" && o.File != "-":
			to = o.File
		}
		rows = append(rows, [2]string{"log", o.Format + ", to " + to})
	}
	switch at := b.adminAt(); {
	case at == config.Off:
	case b.up.Admin == "" || strings.HasPrefix(at, "unix:"):
		rows = append(rows, [2]string{"admin", at})
	default:
		rows = append(rows, [2]string{"dashboard", "http://" + at + "/dashboard/"})
	}
	if off := b.off(); off != "" {
		rows = append(rows, [2]string{"off", off})
	}
	if b.what.folder != nil && !b.what.folder.found {
		if _, err := os.Stat(config.FileName); err == nil {
			rows = append(rows, [2]string{"note", "./" + config.FileName + " is not used: `millrace serve` alone would"})
		}
	}
	stop := "Ctrl+C"
	if !b.terminal {
		stop = fmt.Sprintf("kill %d", os.Getpid())
	}
	if b.what.File != "" {
		stop += "; reload with kill -HUP " + fmt.Sprint(os.Getpid())
	}
	return append(rows, [2]string{"stop", stop})
}

// adminAt is the address of the admin listener, or why there is none.
func (b banner) adminAt() string {
	if b.up.Admin == "" && b.up.Config.Admin.Listen == config.Off {
		return config.Off
	}
	return cmp.Or(b.up.Admin, "none: see the warning above")
}

// named says of certificates for which names they are, and where each stands.
func named(list []dashboard.Certificate) string {
	var all []string
	for _, c := range list {
		state := "good until " + c.Until.Format(time.DateOnly)
		switch {
		case c.Error != "":
			state = "failed: see `millrace certs`"
		case c.Until.IsZero():
			state = "no certificate yet"
		case time.Now().After(c.Until):
			state = "expired on " + c.Until.Format(time.DateOnly)
		}
		all = append(all, c.Name+" ("+state+")")
	}
	if more := len(all) - mostNamed; more > 0 {
		all = append(all[:mostNamed:mostNamed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, ", ")
}

// mostNamed is how many certificates the banner names.
const mostNamed = 3

// limits are those that clients may run into.
func (b banner) limits() string {
	all, each, descriptors := b.server.ConnectionLimits()
	text := fmt.Sprintf("%d connections, %d from one address", all, each)
	share, ok := b.server.WebSocketShare()
	switch {
	case ok:
		text += fmt.Sprintf("; %d WebSockets (%s), %d from one address", share.WebSockets, share.Limit(), share.PerAddress)
	case descriptors > 0:
		text += fmt.Sprintf(" (of %d file descriptors, ulimit -n)", descriptors)
	}
	return text
}

// off says what is not on, and the key of the config that turns it on.
func (b banner) off() string {
	cfg := b.up.Config
	var off []string
	for _, o := range []struct {
		off  bool
		what string
	}{
		{cfg.Lane.Off && !b.what.NoLane, "fast lane (lane.off)"},
		{cfg.Log.Format == "" || cfg.Log.Format == config.Off, "access log (log)"},
		{b.up.Admin == "" && cfg.Admin.Listen == config.Off, "admin listener and dashboard (admin)"},
		{strings.HasPrefix(b.up.Admin, "unix:"), "dashboard in a browser (admin: 127.0.0.1:2019)"},
		{len(cfg.TLS.Listen) > 0 && !cfg.TLS.HTTP3, "HTTP/3 (tls.http3)"},
		{!cfg.Sandbox.On(), "sandbox (sandbox)"},
	} {
		if o.off {
			off = append(off, o.what)
		}
	}
	return strings.Join(off, ", ")
}

// maxLooked bounds how much of a folder is read for one of its files.
const maxLooked = 1024

// firstFile is the URL of a file of a folder that has no first page, so that
// there is something to open; "" where none is needed, or found.
func (b banner) firstFile() string {
	if b.what.folder == nil || b.what.folder.lists {
		return ""
	}
	file := b.withoutIndex()
	at := strings.TrimSuffix(here(b.up.URLs[0]), "/")
	if file == "" || strings.HasPrefix(at, "unix:") {
		return ""
	}
	return at + (&url.URL{Path: "/" + file}).EscapedPath()
}

// withoutIndex names a file of a folder that has no first page, an image where
// it is about images.
func (b banner) withoutIndex() (file string) {
	if _, err := os.Stat(filepath.Join(b.what.folder.dir, "index.html")); err == nil {
		return ""
	}
	f, err := os.Open(b.what.folder.dir)
	if err != nil {
		return ""
	}
	defer f.Close()
	list, _ := f.ReadDir(maxLooked) // what could be read will do
	slices.SortFunc(list, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	options := b.up.Config.Sites[0].Routes["/"].Static
	for _, e := range list {
		if !e.Type().IsRegular() || options.Hides(e.Name()) {
			continue
		}
		if !b.what.folder.images || strings.HasPrefix(mime.TypeByExtension(filepath.Ext(e.Name())), "image/") {
			return e.Name()
		}
		file = cmp.Or(file, e.Name())
	}
	return file
}

// imageRows say what images are converted with, and where they are kept: a
// row for all routes that have the same.
func (b banner) imageRows() (rows [][2]string) {
	all := b.server.Images()
	names := slices.Sorted(maps.Keys(all))
	for _, name := range names {
		h := all[name]
		text := "none: nothing here writes what images.formats names"
		if can := h.Abilities(); len(can.Formats) > 0 {
			text = fmt.Sprintf("%s, kept in %s", imagescmd.Writers(can), cli.Homely(h.Folder()))
		}
		if row := [2]string{"images", text}; !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	if len(names) > 0 && all[names[0]].Sandbox().Missing() != "" { // one says it for all: it is the machine's
		rows[0][1] += "; this machine confines the workers only in part (`millrace check` says why)"
	}
	return rows
}
