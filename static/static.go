// Package static serves files: from a directory, from a program's embedded
// files, from any [fs.FS]. It is a plain [http.Handler]; under millrace serve it
// also teaches the fast lane, which then answers without it.
//
// A request's life: its path becomes a name or a 404 (paths.go); the name's
// snapshot is looked up, or probed and read once (snapshot.go, table.go); the
// best encoding is chosen by Accept-Encoding; package send does conditions,
// ranges and the writing; and the answer is offered to the lane. What is held
// is void as soon as the watcher (watch.go) or the sweep (sweep.go) sees that
// the file changed. Compressible files are compressed once, in the background
// (compress.go). Where there is no room for all files, those that are asked for again,
// also from the lane, stay, and only they are compressed.
package static

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/internal/bytesize"
	"millrace/internal/lane"
	"millrace/internal/wire/compress"
	"millrace/internal/wire/dictionary"
	"millrace/internal/wire/negotiate"
	"millrace/internal/wire/send"
	"millrace/static/packfile"
)

// Options of the job. The zero value serves a site as most want it.
type Options struct {
	// Root is the directory of the site's files. Required.
	Root string `yaml:"root"`
	// Fallback are directories that are asked in turn for what Root does not have,
	// as in [./theme, ./shared]; at most 7.
	Fallback []string `yaml:"fallback"`
	// Index names the files that answer for their directory, the first one
	// that exists. Default index.html.
	Index []string `yaml:"index"`
	// NotFound is the page, relative to Root, that answers with status 404
	// what does not exist. Default 404.html; without that file a line of text.
	NotFound string `yaml:"not_found"`
	// Hidden serves files and directories whose name begins with a dot.
	// Otherwise they do not exist, /.well-known at the top excepted.
	Hidden bool `yaml:"hidden"`
	// Private are names of files and folders that do not exist for clients: as
	// [path.Match] has them, in any case, also compressed or as a backup
	// (dump.sql.gz, config.php~). "default" stands for the list that is used
	// without one: sources of PHP and its like (*.php), settings (.env),
	// dumps (*.sql), keys (*.pem, *.key, id_rsa) and version control (.git).
	// "off" alone serves everything.
	Private []string `yaml:"private"`
	// CacheControl overrides the Cache-Control header; the first rule that
	// matches counts. Without one: a year and immutable for names that hold a
	// hash of their content, no-cache for HTML, five minutes for the rest.
	CacheControl []CacheRule `yaml:"cache_control"`
	// CleanURLs lets /about be answered by about.html, where there is no file
	// about.
	CleanURLs bool `yaml:"clean_urls"`
	// HTMLRedirect sends /about.html to /about, and /docs/index.html to /docs/.
	// It needs clean_urls.
	HTMLRedirect bool `yaml:"html_redirect"`
	// SPA is the page of a single-page application, as in index.html: it
	// answers, with status 200, where a browser goes to an address that no
	// file has. Scripts, images and what else a page asks for stay 404.
	SPA string `yaml:"spa"`
	// Listing lists folders without an index: as HTML, or as JSON for who
	// accepts that, sorted by ?sort=name (file2 before file10), size or date and
	// &order=desc. Hidden and private files are left out.
	Listing bool `yaml:"listing"`
	// Archives lets listed folders be had as a whole: ?archive=zip or tar.gz, up
	// to 10000 files and 1 GiB.
	Archives bool `yaml:"archives"`
	// Types are media types by extension or name, as in {.md: text/plain}.
	Types map[string]string `yaml:"types"`
	// Charset is that of texts, instead of utf-8. "off" names none.
	Charset string `yaml:"charset"`
	// Decompress lets data.json.gz, .br or .zst alone answer for data.json:
	// clients that cannot take it get up to 16 MiB decompressed.
	Decompress bool `yaml:"decompress"`
	// RuleFiles obeys the files _redirects and _headers at the top of the folder, in
	// the format of Netlify and Cloudflare Pages, and reads them again when they
	// change. They are never sent, with or without it.
	RuleFiles bool `yaml:"rule_files"`
	// Log gets the lines of these files that do not hold. Default slog.Default().
	Log *slog.Logger `yaml:"-" json:"-"`
	// Dictionaries are paths of files that are versions of each other, in which a
	// star is any text, as in [/assets/app-*.js]. Browsers that have one version get
	// of the next only what has changed (RFC 9842).
	Dictionaries dictionary.Rules `yaml:"dictionaries"`
	// Mount is what stands before the paths of the files in URLs. Dictionaries and
	// redirects need to know; with Millrace's own server it is the path of the route.
	Mount string `yaml:"-"`
	// NoPrecompressed ignores files named like another with .br, .zst or .gz
	// appended; otherwise they answer for that other file.
	NoPrecompressed bool `yaml:"no_precompressed"`
	// NoCompress switches compression in the background off.
	NoCompress bool `yaml:"no_compress"`
	// Memory is how many bytes of contents are held, those of converted images
	// included where a route has them. Default 64MiB.
	Memory bytesize.Size `yaml:"memory"`
	// Files is how many files are remembered at most. Default 8192.
	Files int `yaml:"files"`
	// Background does what has to be done while nobody asks, for many handlers
	// together. Nil: the handler has one of its own.
	Background *Background `yaml:"-" json:"-"`
}

// CacheRule sets Cache-Control for some files.
type CacheRule struct {
	// Match is a pattern as [path.Match] has it: without a slash for the
	// file's name ("*.css"), with slashes for its whole path ("/img/*.png"),
	// ending in a slash for everything in that directory ("/assets/").
	Match string `yaml:"match"`
	// Value is the header's value, for example "max-age=3600".
	Value string `yaml:"value"`
}

// DefaultMemory is the default of Options.Memory.
const DefaultMemory bytesize.Size = 64 << 20

const (
	// defaultFiles bounds what the sweep has to look at: 8192 files are about
	// 30 ms of CPU, once in sweepEvery.
	defaultFiles = 8192
	// maxAttempts bounds the tries to find a file that stays the same for as
	// long as it takes to read it.
	maxAttempts = 3
)

// Handler serves the files. It must be closed.
type Handler struct {
	options  Options
	private  *private
	trees    trees
	table    *table
	built    time.Time            // stands for the date of files that have none
	types    map[string]mediaType // of Options.Types
	archives chan struct{}        // those that are being made
	// expand decompresses; nil in programs with a packed site, which need no decoder.
	expand   func(negotiate.Coding, io.Reader) (io.ReadCloser, error)
	pictures bool // a packed site with variants of its images
	versions versions
	rules    ruleFiles

	// What keepCurrent sets: a packed site needs none of it, and programs that serve
	// nothing else have neither encoders nor a watcher linked in.
	start       func()
	compress    func(e *entry, s *snapshot, tools *compress.Tools)
	compressFor func(e *entry, with *dictionary.Ask, tools *compress.Tools)

	background *Background // nil: nothing is to be done, as for packed files
	how        freshness
	first      sync.Once // the first request
	watch      *watcher  // set by the first request; nil where nothing can be watched

	mu      sync.Mutex
	closed  bool
	closing chan struct{}
	running sync.WaitGroup
}

// New serves the files of fsys. Their content is read again when their size or
// date in fsys changes, within a second. Symbolic links are fsys's affair: for
// a directory on disk use [Open], which lets none lead outside.
func New(fsys fs.FS, o Options) (*Handler, error) {
	if fsys == nil {
		return nil, errors.New("static: no file system to serve")
	}
	h, err := start(trees{{fsys: fsys}}, o)
	if err == nil {
		h.keepCurrent(swept)
	}
	return h, err
}

// Open serves the directory dir, and behind it those of Options.Fallback. Symbolic links are followed while they stay
// inside it; absolute ones never are. If dir is itself a link that is pointed
// at another directory, that one is served within a second.
func Open(dir string, o Options) (*Handler, error) {
	o.Root = dir
	all, err := openTrees(o.Folders())
	if err != nil {
		return nil, err
	}
	h, err := start(all, o)
	if err != nil {
		all.close()
		return nil, err
	}
	h.keepCurrent(watched | swept)
	return h, nil
}

// OpenPacked serves the folders that the options name, from a packed site. Their
// encodings are those that were packed; nothing is compressed or looked at again. A
// program that calls only this has neither encoders nor a watcher linked in.
func OpenPacked(site *packfile.Site, o Options) (*Handler, error) {
	o.NoCompress = true
	var all trees
	pictures := false
	for _, name := range o.Folders() {
		folder := site.Folder(name)
		if folder == nil {
			return nil, fmt.Errorf("static: the folder %s is not packed", name)
		}
		_, none := folder.Stat(strings.TrimSuffix(PackedVariants, "/"))
		pictures = pictures || none == nil
		all = append(all, &tree{name: name, fsys: folder, packed: folder})
	}
	h, err := start(all, o)
	if err == nil {
		h.pictures = pictures
	}
	return h, err
}

// freshness says how a handler learns of changes. Tests leave one out to see
// the other at work.
type freshness int

const (
	watched freshness = 1 << iota
	swept
)

// start fills in the defaults.
func start(all trees, o Options) (*Handler, error) {
	for key, fault := range o.Check() { // any of them
		return nil, fmt.Errorf("static: %s: %w", key, fault)
	}
	if len(o.Index) == 0 {
		o.Index = []string{"index.html"}
	}
	o.NotFound = cmp.Or(o.NotFound, "404.html")
	o.NotFound = strings.TrimPrefix(o.NotFound, "/")
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	o.Files = cmp.Or(o.Files, defaultFiles)
	hides := o.Background.privates(o)
	o.Index = slices.DeleteFunc(slices.Clone(o.Index), hides.covers)
	h := &Handler{
		options:  o,
		private:  hides,
		trees:    all,
		table:    newTable(int64(o.Memory), o.Files),
		built:    o.Background.builtAt(),
		closing:  make(chan struct{}),
		types:    ownTypes(o),
		archives: make(chan struct{}, maxArchives),
	}
	h.rules.on = o.RuleFiles
	if err := h.firstRules(); err != nil {
		return nil, err
	}
	return h, nil
}

// keepCurrent says how the handler learns of changes, from its first request on.
func (h *Handler) keepCurrent(how freshness) {
	h.expand = expand
	h.start, h.compress, h.compressFor = h.startBackground, h.compressOne, h.compressVersion
	h.how = how
	h.versions.on = len(h.options.Dictionaries) > 0
	h.background = h.options.Background
	if h.background == nil {
		h.background = NewBackground(0, nil)
	}
	h.table.background = h.background
	for _, t := range h.trees {
		t.background = h.background
	}
}

// wake starts, at the first request, what keeps the handler current. Before that it
// holds nothing that could change.
func (h *Handler) wake() {
	if h.background != nil {
		h.first.Do(h.start)
	}
}

func (h *Handler) startBackground() {
	if h.how&watched != 0 {
		h.startWatching()
	}
	h.readRules() // which may have changed since New
	h.wantOldVersions()
	if h.how&swept != 0 {
		h.background.wake(h)
	}
}

// during calls f, for which Close waits; not at all once the handler is closed.
func (h *Handler) during(f func()) {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return
	}
	h.running.Add(1)
	h.mu.Unlock()
	defer h.running.Done()
	f()
}

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error {
	faults := map[string]error{}
	for _, name := range o.Index {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") {
			faults["index"] = fmt.Errorf("%q is not a file name: write one like index.html", name)
		}
	}
	for _, name := range o.Private {
		if _, err := path.Match(name, ""); err != nil || name == "" || strings.Contains(name, "/") {
			faults["private"] = fmt.Errorf("%q is not a pattern for names: write one like *.bak", name)
		} else if name == privateOff && len(o.Private) > 1 {
			faults["private"] = fmt.Errorf("%q stands alone: it serves everything", name)
		}
	}
	if name := strings.TrimPrefix(o.NotFound, "/"); o.NotFound != "" && !fs.ValidPath(name) {
		faults["not_found"] = fmt.Errorf("%q is not a path within the site: write one like 404.html", o.NotFound)
	}
	for _, rule := range o.CacheControl {
		if _, err := path.Match(rule.Match, ""); err != nil || rule.Match == "" {
			faults["cache_control"] = fmt.Errorf("match %q is not a pattern: write one like *.css or /assets/", rule.Match)
		} else if strings.ContainsFunc(rule.Value, func(c rune) bool { return c < ' ' || c > '~' }) || rule.Value == "" {
			faults["cache_control"] = fmt.Errorf("value %q cannot stand in a header: write one like max-age=3600", rule.Value)
		}
	}
	if err := o.Dictionaries.Check(); err != nil {
		faults["dictionaries"] = err
	}
	o.checkFallback(faults)
	o.checkPages(faults)
	if o.Memory < 0 {
		faults["memory"] = errors.New("memory cannot be negative")
	}
	if o.Files < 0 {
		faults["files"] = errors.New("files cannot be negative")
	}
	return faults
}

// Close ends the watching and compressing, voids what the fast lane has, and
// closes all files. Downloads under way go on; new requests get 503.
func (h *Handler) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		h.running.Wait()
		return nil
	}
	h.closed = true
	close(h.closing)
	h.mu.Unlock()
	h.first.Do(func() {}) // waits for a request that is starting things
	h.table.close()
	if h.watch != nil {
		h.watch.close()
		h.background.watched.Add(-1)
	}
	h.running.Wait()
	h.trees.close()
	if h.background == nil {
		return nil
	}
	h.background.leave(h)
	if h.options.Background == nil {
		return h.background.Close()
	}
	return nil
}

// ServeHTTP answers GET and HEAD by the URL's path, below whatever prefix the
// handler is mounted at and the caller has stripped.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.wake()
	rules := h.rules.load()
	if h.ruledFirst(w, r, rules) {
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header()["Allow"] = []string{"GET, HEAD"}
		respondStatus(w, r, http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "" { // the mount point without its slash
		if last := lastSegment(r.RequestURI); last != "" {
			redirect(w, r, last)
			return
		}
	}
	name, ok := h.requestName(r.URL)
	if !ok {
		if !h.ruled(w, r, rules, false) {
			h.notFound(w, r)
		}
		return
	}
	if h.options.HTMLRedirect && h.toClean(w, r, name) {
		return
	}
	u, err := h.use(h.picture(name, r.Header), r.Header)
	if err != nil {
		h.fail(w, r, name, err)
		return
	}
	defer u.done()
	if rules.closes(u.snapshot.found.file) { // by another path than its own, as /about for about.html
		respondStatus(w, r, http.StatusForbidden)
		return
	}
	if u.offer && rules.current() {
		lane.Offer(r, u.answer, rules.restrictOffer(u.rule()))
	}
	send.Serve(w, r, u.answer)
}

// varyOnEncoding is the Rule.VaryOn of files that have encodings.
var varyOnEncoding = []string{"Accept-Encoding"}

func (u *use) rule() lane.Rule {
	rule := lane.Rule{Version: u.snapshot.version, Used: u.again, Negotiated: true}
	switch {
	case u.snapshot.pictured && u.snapshot.vary:
		rule.VaryOn = varyBoth
	case u.snapshot.pictured:
		rule.VaryOn = varyAccept
	case u.snapshot.dictionary > 0:
		rule.VaryOn = varyDictionary
	case u.snapshot.vary:
		rule.VaryOn = varyOnEncoding
	}
	return rule
}

// isIndex reports whether a file of that name answers for its directory.
func (h *Handler) isIndex(base string) bool { return slices.Contains(h.options.Index, base) }
