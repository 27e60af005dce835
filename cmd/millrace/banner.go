package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"millrace/images"
	"millrace/internal/admin"
	"millrace/internal/bytesize"
	"millrace/internal/config"
)

// banner is what a server says when it is up: everything listed is open.
type banner struct {
	version  string
	what     source
	cfg      *config.Config
	addrs    []string
	admin    string
	terminal bool
	images   map[string]*images.Handler // of the routes with pictures
}

func (b banner) show(s streams) {
	bold, dim, plain := "", "", ""
	if b.terminal && os.Getenv("NO_COLOR") == "" {
		bold, dim, plain = "\x1b[1m", "\x1b[2m", "\x1b[0m"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%smillrace%s %s %s\n\n", bold, plain, b.version, b.subject())
	for _, a := range urls(b.addrs) {
		fmt.Fprintf(&out, "  %s%s%s\n", bold, a, plain)
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
		return "serves this folder and converts its pictures"
	case b.what.found:
		return "serves this folder"
	}
	if b.what.images {
		return "serves the folder " + b.what.dir + " and converts its pictures"
	}
	return "serves the folder " + b.what.dir
}

func (b banner) rows() [][2]string {
	lane := "off: every request goes through net/http"
	if !b.cfg.Lane.Off {
		memory := b.cfg.Lane.Memory
		if memory == 0 {
			memory = defaultLaneMemory
		}
		lane = "on, with " + memory.String() + " for finished answers"
	}
	log := "off"
	if f := b.cfg.Log.Format; f != "" && f != config.Off {
		log = f + ", to the standard output"
		if file := b.cfg.Log.File; file != "" && file != "-" {
			log = f + ", to " + file
		}
	}
	adminAt := cmp.Or(b.admin, "off")
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
		rows = append(rows, [2]string{"lane", lane}) // it answers no WebSockets
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
	memory := cmp.Or(o.Memory, defaultCacheMemory).String() + " of memory"
	if o.Disk != "" {
		memory += fmt.Sprintf(", %s in %s", cmp.Or(o.DiskSize, defaultDiskSize), o.Disk)
	}
	if o.Shared != "" {
		memory += ", shared with other machines"
	}
	rows := [][2]string{{"preset", preset}, {"ttl", ttl}, {"keeps", memory}}
	if len(o.CORS.Origins) > 0 {
		rows = append(rows, [2]string{"cors", strings.Join(o.CORS.Origins, " ")})
	}
	if b.admin == "" {
		return append(rows, [2]string{"purge", "not possible, since the admin listener is off"})
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

// imageRows say what pictures are converted with, and where they are kept: a
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
	return rows
}

// What cache.Options have when they are not set.
const (
	defaultCacheMemory bytesize.Size = 256 << 20
	defaultDiskSize    bytesize.Size = 10 << 30
)

// defaultLaneMemory is what lane.Options.Memory is when it is not set.
const defaultLaneMemory bytesize.Size = 64 << 20

// count is "1 site", "2 sites".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// isTerminal reports whether a person is likely to be looking.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
}
