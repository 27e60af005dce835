package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

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
}

func (b banner) show(s streams) {
	bold, dim, plain := "", "", ""
	if b.terminal && os.Getenv("NO_COLOR") == "" {
		bold, dim, plain = "\x1b[1m", "\x1b[2m", "\x1b[0m"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%smillrace%s %s serves %s\n\n", bold, plain, b.version, b.subject())
	for _, a := range urls(b.addrs) {
		fmt.Fprintf(&out, "  %s%s%s\n", bold, a, plain)
	}
	out.WriteByte('\n')
	for _, row := range b.rows() {
		fmt.Fprintf(&out, "  %s%-6s%s %s\n", dim, row[0], plain, row[1])
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

// subject is what is served.
func (b banner) subject() string {
	switch {
	case b.what.file != "":
		s := fmt.Sprintf("%s as %s says", count(len(b.cfg.Sites), "site"), b.what.file)
		if b.what.found {
			s += " (found here)"
		}
		return s
	case b.what.found:
		return "this folder"
	}
	return "the folder " + b.what.dir
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
	admin := "off"
	if b.admin != "" {
		admin = b.admin
	}
	stop := "Ctrl+C"
	if !b.terminal {
		stop = fmt.Sprintf("kill %d", os.Getpid())
	}
	if b.what.file != "" {
		stop += "; reload with kill -HUP " + fmt.Sprint(os.Getpid())
	}
	rows := [][2]string{{"lane", lane}, {"log", log}, {"admin", admin}, {"stop", stop}}
	if b.what.dir != "" && !b.what.found {
		if _, err := os.Stat(config.FileName); err == nil {
			rows = append(rows, [2]string{"note", "./" + config.FileName + " is not used: `millrace serve` alone would"})
		}
	}
	return rows
}

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
