package compare

import (
	"bufio"
	"io"
	"io/fs"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// Queue are the targets to ask a site for, each once, up to a limit.
type Queue struct {
	limit int
	seen  map[string]bool
	next  []string
}

// NewQueue returns an empty queue for so many targets.
func NewQueue(limit int) *Queue { return &Queue{limit: limit, seen: map[string]bool{}} }

// Add enters a target; one that is no path is none.
func (q *Queue) Add(target string) {
	if !strings.HasPrefix(target, "/") || q.seen[target] || len(q.seen) >= q.limit || strings.ContainsAny(target, " \r\n\t") {
		return
	}
	q.seen[target] = true
	q.next = append(q.next, target)
}

// Next takes one out.
func (q *Queue) Next() (string, bool) {
	if len(q.next) == 0 {
		return "", false
	}
	t := q.next[0]
	q.next = q.next[1:]
	return t, true
}

// Links adds what a page leads to on its own site.
func (q *Queue) Links(s Site, target string, a Answer) {
	base, err := url.Parse(s.URL(target))
	if err != nil {
		return
	}
	add := func(text string) {
		u, err := base.Parse(strings.ReplaceAll(text, "&amp;", "&"))
		if err == nil && strings.EqualFold(u.Hostname(), s.Host) && strings.HasPrefix(u.Scheme, "http") {
			q.Add(u.RequestURI())
		}
	}
	if to := a.Header.Get("Location"); to != "" {
		add(location(s, target, to))
	}
	if !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") {
		return
	}
	link := regexp.MustCompile(`(?i)\b(?:href|src|action)\s*=\s*["']?([^"'\s>]+)`)
	for _, m := range link.FindAllSubmatch(a.Body, -1) {
		add(string(m[1]))
	}
}

// Files adds the files of a folder under a path, the folders themselves, and for
// scripts a path that goes on behind their names: a way around rules for them.
func (q *Queue) Files(root, prefix string) {
	_ = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || len(q.seen) >= q.limit {
			return filepath.SkipAll // what cannot be read is not asked for
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return filepath.SkipAll
		}
		target := strings.TrimSuffix(prefix, "/")
		if rel != "." {
			target += "/" + filepath.ToSlash(rel)
		}
		target = (&url.URL{Path: target}).EscapedPath()
		if d.IsDir() {
			if target != "" {
				q.Add(target)
			}
			target += "/"
		}
		q.Add(target)
		if path.Ext(target) == ".php" { // whether that is the script is a matter of the config
			q.Add(target + "/behind")
		}
		return nil
	})
}

// Log adds the targets of the GET and HEAD requests of an access log: any
// format that has the request line in quotes, as combined and common have.
func (q *Queue) Log(r io.Reader) error {
	line := regexp.MustCompile(`"(?:GET|HEAD) (/[^ "]*) HTTP/`)
	const longest = 1 << 20
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), longest)
	for lines.Scan() {
		if m := line.FindSubmatch(lines.Bytes()); m != nil {
			q.Add(string(m[1]))
		}
	}
	return lines.Err() //nolint:wrapcheck // the caller names the file
}
