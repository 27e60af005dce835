package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"mime"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/cache"
	"millrace/images"
	"millrace/images/sandbox"
	"millrace/internal/admin"
	"millrace/internal/config"
	"millrace/internal/lane"
	"millrace/store/disk"
)

// banner is what a server says when it is up: everything listed is open.
type banner struct {
	version  string
	what     source
	cfg      *config.Config
	addrs    []string
	admin    string
	terminal bool
	images   map[string]*images.Handler // of the routes with images
}

func (b banner) show(s streams) {
	if s.json() {
		s.tell(slog.LevelInfo, "serving", b.attrs()...)
		return
	}
	bold, dim, plain := "", "", ""
	if b.terminal && os.Getenv("NO_COLOR") == "" {
		bold, dim, plain = "\x1b[1m", "\x1b[2m", "\x1b[0m"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%smillrace%s %s %s\n\n", bold, plain, b.version, b.subject())
	for _, a := range urls(b.addrs) {
		fmt.Fprintf(&out, "  %s%s%s\n", bold, a, plain)
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
	s.say("%s", out.String()) // in one write
}

// attrs is the banner for programs.
func (b banner) attrs() []slog.Attr {
	attrs := []slog.Attr{
		slog.String("version", b.version),
		slog.String("what", b.subject()),
		slog.Any("addresses", urls(b.addrs)),
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

// urls is where the site is: http, https, then sockets as --listen has them.
func urls(addrs []string) []string {
	out := slices.Clone(addrs)
	for i, a := range out {
		if scheme, socket, ok := strings.Cut(a, "+unix:"); ok {
			out[i] = "unix:" + socket
			if scheme == "https" {
				out[i] += " (HTTPS)"
			}
		}
	}
	slices.Sort(out)
	return out
}

// subject is what it does.
func (b banner) subject() string {
	switch {
	case b.what.cache != nil:
		var all []string
		for _, u := range b.what.cache {
			all = append(all, u.String())
		}
		return "is a cache in front of " + strings.Join(all, ", ")
	case b.what.ws != nil:
		return b.what.ws.subject()
	case b.what.published:
		return fmt.Sprintf("is a cache in front of %s, as %s says", b.cfg.Sites[0].Routes["/"].Cache.To[0], b.what.file)
	case b.what.file != "":
		s := fmt.Sprintf("serves %s as %s says", count(len(b.cfg.Sites), "site"), b.what.file)
		if b.what.found {
			s += " (found here)"
		}
		return s
	case b.what.found && b.what.images:
		return "serves this folder and converts its images"
	case b.what.found:
		return "serves this folder"
	}
	if b.what.images {
		return "serves the folder " + b.what.dir + " and converts its images"
	}
	return "serves the folder " + b.what.dir
}

func (b banner) rows() [][2]string {
	fast := "off: every request goes through net/http"
	if !b.cfg.Lane.Off {
		fast = "on, with " + cmp.Or(b.cfg.Lane.Memory, lane.DefaultMemory).String() + " for finished answers"
	}
	log := "off"
	if f := b.cfg.Log.Format; f != "" && f != config.Off {
		log = f + ", to the standard output"
		if file := b.cfg.Log.File; file != "" && file != "-" {
			log = f + ", to " + file
		}
	}
	adminAt := b.admin
	switch {
	case adminAt == "" && b.cfg.Admin.Listen == config.Off:
		adminAt = "off"
	case adminAt == "":
		adminAt = "none: see the warning above"
	}
	stop := "Ctrl+C"
	if !b.terminal {
		stop = fmt.Sprintf("kill %d", os.Getpid())
	}
	if b.what.file != "" {
		stop += "; reload with kill -HUP " + fmt.Sprint(os.Getpid())
	}
	rows := b.cacheRows()
	if b.what.ws != nil {
		rows = b.what.ws.rows(b.cfg, urls(b.addrs), b.admin != "")
	} else {
		rows = append(rows, [2]string{"lane", fast}) // it answers no WebSockets
	}
	rows = append(rows, b.imageRows()...)
	rows = append(rows, [][2]string{{"log", log}, {"admin", adminAt}, {"stop", stop}}...)
	if b.what.dir != "" && !b.what.found {
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
	if b.what.dir == "" {
		return ""
	}
	file := b.withoutIndex()
	at := strings.TrimSuffix(urls(b.addrs)[0], "/")
	if file == "" || strings.HasPrefix(at, "unix:") {
		return ""
	}
	return at + (&url.URL{Path: "/" + file}).EscapedPath()
}

// withoutIndex names a file of a folder that has no first page, an image where
// it is about images.
func (b banner) withoutIndex() (file string) {
	if _, err := os.Stat(filepath.Join(b.what.dir, "index.html")); err == nil {
		return ""
	}
	f, err := os.Open(b.what.dir)
	if err != nil {
		return ""
	}
	defer f.Close()
	list, _ := f.ReadDir(maxLooked) // what could be read will do
	slices.SortFunc(list, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	options := b.cfg.Sites[0].Routes["/"].Static
	for _, e := range list {
		if !e.Type().IsRegular() || options.Hides(e.Name()) {
			continue
		}
		if !b.what.images || strings.HasPrefix(mime.TypeByExtension(filepath.Ext(e.Name())), "image/") {
			return e.Name()
		}
		file = cmp.Or(file, e.Name())
	}
	return file
}

// cacheRows say what the one cache of `millrace cache` does, and what to type to
// work with it.
func (b banner) cacheRows() [][2]string {
	if b.what.cache == nil && !b.what.published {
		return nil
	}
	o := b.cfg.Sites[0].Routes["/"].Cache
	preset := cmp.Or(o.Preset, "api")
	ttl := brief(o.TTL) + ", for answers that give none themselves"
	if o.TTL == 0 {
		ttl = "none: answers that give none themselves are joined, but not kept; --ttl 5m keeps them"
	}
	memory := cmp.Or(o.Memory, cache.DefaultMemory).String() + " of memory"
	if o.Disk != "" {
		memory += fmt.Sprintf(", %s in %s", cmp.Or(o.DiskSize, disk.DefaultLimit), o.Disk)
	}
	if o.Shared != "" {
		memory += ", shared with other machines"
	}
	rows := [][2]string{{"preset", preset}, {"ttl", ttl}, {"keeps", memory}}
	if len(o.CORS.Origins) > 0 {
		rows = append(rows, [2]string{"cors", strings.Join(o.CORS.Origins, " ")})
	}
	if b.admin == "" {
		return append(rows, [2]string{"purge", "not possible without the admin listener"})
	}
	url, option := strings.TrimSuffix(urls(b.addrs)[0], "/")+"/", ""
	if strings.HasPrefix(url, "unix:") {
		url = "http://localhost/"
	}
	if found, err := admin.Find(); err != nil || len(found) != 1 {
		option = " --admin " + b.admin // which of them is meant has to be said
	}
	return append(rows,
		[2]string{"purge", "millrace cache purge --all" + option},
		[2]string{"why", "millrace cache explain " + url + option})
}

// imageRows say what images are converted with, and where they are kept: a
// row for all routes that have the same.
func (b banner) imageRows() (rows [][2]string) {
	for _, name := range namesOf(b.images) {
		h := b.images[name]
		text := "none: nothing here writes what images.formats names"
		if can := h.Abilities(); len(can.Formats) > 0 {
			text = fmt.Sprintf("%s, kept in %s", writers(can), homely(h.Folder()))
		}
		if row := [2]string{"images", text}; !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	for _, name := range namesOf(b.images) { // one says it for all: it is the machine's
		return append(rows, confined(b.images[name].Sandbox())...)
	}
	return rows
}

// confined are rows about what keeps the image workers from the rest of the
// machine, and about what does not.
func confined(report sandbox.Report) (rows [][2]string) {
	if in := report.InForce(); in != "" {
		rows = append(rows, [2]string{"workers", in})
	}
	if not := report.Missing(); not != "" {
		rows = append(rows, [2]string{"", "not in force here: " + not})
	}
	return rows
}
