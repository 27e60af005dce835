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

	"millrace/cmd/internal/cli"
	"millrace/cmd/internal/imagescmd"
	"millrace/internal/config"
	"millrace/internal/engine"
	"millrace/internal/lane"
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
	for _, a := range b.up.URLs {
		fmt.Fprintf(&out, "  %s%s%s%s\n", bold, here(a), plain, openAt(a))
	}
	if page := b.firstFile(); page != "" {
		fmt.Fprintf(&out, "  %s%s%s  is a file here; / is not found without an index.html\n", bold, page, plain)
	}
	out.WriteByte('\n')
	rows := b.rows()
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
		if name == "stop" { // pid says it
			continue
		}
		if i, ok := at[name]; ok {
			attrs[i] = slog.String(name, attrs[i].Value.String()+"; "+row[1])
			continue
		}
		at[name] = len(attrs)
		attrs = append(attrs, slog.String(name, row[1]))
	}
	return attrs
}

func (b banner) rows() [][2]string {
	fast := "off: every request goes through net/http"
	if !b.up.Config.Lane.Off {
		fast = "on, with " + cmp.Or(b.up.Config.Lane.Memory, lane.DefaultMemory).String() + " for finished answers"
	}
	log := "off"
	if o := b.up.Config.Log; o.Format != "" && o.Format != config.Off {
		to := "the standard output"
		switch {
		case o.To != "":
			to = o.To
		case o.File != "" && o.File != "-":
			to = o.File
		}
		log = o.Format + ", to " + to
	}
	adminAt := b.up.Admin
	switch {
	case adminAt == "" && b.up.Config.Admin.Listen == config.Off:
		adminAt = "off"
	case adminAt == "":
		adminAt = "none: see the warning above"
	}
	stop := "Ctrl+C"
	if !b.terminal {
		stop = fmt.Sprintf("kill %d", os.Getpid())
	}
	if b.what.File != "" {
		stop += "; reload with kill -HUP " + fmt.Sprint(os.Getpid())
	}
	var rows [][2]string
	if b.what.Rows != nil {
		rows = b.what.Rows(b.up)
	}
	if !b.what.NoLane {
		rows = append(rows, [2]string{"lane", fast})
	}
	rows = append(rows, b.imageRows()...)
	if share, ok := b.server.WebSocketShare(); ok {
		rows = append(rows, [2]string{"limit", fmt.Sprintf("at most %d WebSockets (%s), %d from one address", share.WebSockets, share.Limit(), share.PerAddress)})
	}
	if text := b.box.describe(); text != "" {
		rows = append(rows, [2]string{"sandbox", text})
	}
	rows = append(rows, [][2]string{{"log", log}, {"admin", adminAt}, {"stop", stop}}...)
	if b.what.folder != nil && !b.what.folder.found {
		if _, err := os.Stat(config.FileName); err == nil {
			rows = append(rows, [2]string{"note", "./" + config.FileName + " is not used: `millrace serve` alone would"})
		}
	}
	return rows
}

// maxLooked bounds how much of a folder is read for one of its files.
const maxLooked = 1024

// firstFile is the URL of a file of a folder that has no first page, so that
// there is something to open; "" where none is needed, or found.
func (b banner) firstFile() string {
	if b.what.folder == nil {
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
	for _, name := range names { // one says it for all: it is the machine's
		return append(rows, imagescmd.Confined(all[name].Sandbox())...)
	}
	return rows
}
