package static

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/lane"
	"millrace/internal/route/match"
	"millrace/internal/route/rulefile"
	"millrace/internal/server/guard"
	"millrace/internal/wire/send"
)

// ruleFiles are _redirects and _headers, as they were read last.
type ruleFiles struct {
	on  bool
	gen lane.Generation
	now atomic.Pointer[folderRules] // nil: there are none

	mu     sync.Mutex // held while they are read
	stamps [2]stamp
	read   bool // as they are now
	sum    [sha256.Size]byte
}

// folderRules are the rules of a folder's own _redirects and _headers; nil: none.
type folderRules struct {
	redirects *rulefile.Redirects
	headers   *rulefile.Headers
	version   lane.Version
}

// ruleNames are the names of the files.
var ruleNames = [2]string{rulefile.RedirectsName, rulefile.HeadersName}

// load returns the rules that hold now.
func (f *ruleFiles) load() *folderRules { return f.now.Load() }

// forget makes readRules read the files again even if they look unchanged.
func (f *ruleFiles) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read = false
}

// firstRules reads the files for the first time. Where they cannot be read it is not
// known which paths they close, so nothing is served then.
func (h *Handler) firstRules() error {
	h.readRules()
	if !h.rules.on || h.rules.load() != nil {
		return nil
	}
	if _, _, _, err := h.trees.readRules(); err != nil {
		return fmt.Errorf("static: rule_files: %w: make it readable and at most 1 MiB, or leave rule_files out", err)
	}
	return nil
}

// readRules reads the files if they have changed. What is wrong with them is
// logged; what could not be read stays as it was.
func (h *Handler) readRules() {
	f := &h.rules
	if !f.on {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var stamps [2]stamp
	for i, name := range ruleNames {
		if _, info, err := h.trees.stat(name); err == nil {
			stamps[i] = stampOf(info)
		} else if !errors.Is(err, errNotFound) {
			return // it may come back
		}
	}
	if f.read && stamps == f.stamps {
		return
	}
	next, found, sum, err := h.trees.readRules()
	if err != nil {
		if f.stamps != stamps {
			h.log().Error("the folder's rules cannot be read; those before hold", "folder", h.options.Root, "err", err)
		}
		f.stamps = stamps
		return
	}
	f.stamps, f.read = stamps, !h.trees.moving(stamps)
	if sum == f.sum && f.now.Load() != nil {
		return
	}
	f.sum = sum
	for _, fault := range found {
		h.log().Warn("a line of the folder's rules does not hold", "folder", h.options.Root, "at", fmt.Sprintf("%s:%d", fault.File, fault.Line), "err", fault.Err)
	}
	f.gen.Invalidate()
	next.version = f.gen.Now()
	f.now.Store(next)
	h.table.voidAll() // their headers are part of what is held
}

func (h *Handler) log() *slog.Logger {
	if h.options.Log != nil {
		return h.options.Log
	}
	return slog.Default()
}

// readRules reads both files, each where it is found first, and sums them up. One that
// is not there has no rules.
func (all trees) readRules() (rules *folderRules, wrong []rulefile.Fault, sum [sha256.Size]byte, err error) {
	var texts [2][]byte
	for i, name := range ruleNames {
		file, _, err := all.open(name)
		if errors.Is(err, errNotFound) {
			continue
		}
		if err != nil {
			return nil, nil, sum, fmt.Errorf("%s: %w", name, err)
		}
		texts[i], err = io.ReadAll(io.LimitReader(file, rulefile.MaxSize+1))
		_ = file.Close() // read only
		if err == nil && len(texts[i]) > rulefile.MaxSize {
			err = fmt.Errorf("it is larger than %d bytes", rulefile.MaxSize)
		}
		if err != nil {
			return nil, nil, sum, fmt.Errorf("%s: %w", name, err)
		}
	}
	redirects, wrong := rulefile.ParseRedirects(texts[0])
	headers, more := rulefile.ParseHeaders(texts[1])
	sum = sha256.Sum256(bytes.Join(texts[:], []byte{0}))
	return &folderRules{redirects: redirects, headers: headers}, append(wrong, more...), sum, nil
}

// moving reports whether one of the files has changed so recently that it has to be
// read again.
func (all trees) moving(stamps [2]stamp) bool {
	now := time.Now()
	return !all.fixed() && (stamps[0].racy(now) || stamps[1].racy(now))
}

// ruleFiles are the names of those that are there.
func (all trees) ruleFiles() (found []string) {
	for _, name := range ruleNames {
		if _, info, err := all.stat(name); err == nil && info.Mode().IsRegular() {
			found = append(found, name)
		}
	}
	return found
}

// RuleFaults are the lines of the folder's _redirects and _headers that do not hold,
// with file and line. There are none where rule_files is off.
func (o Options) RuleFaults() (list []string) {
	if !o.RuleFiles {
		return nil
	}
	all, err := openTrees(o.Folders())
	if err != nil {
		return nil // Open says so
	}
	defer all.close()
	_, found, _, err := all.readRules()
	if err != nil {
		return []string{"the folder's rules cannot be read: " + err.Error()}
	}
	for _, fault := range found {
		if t, _, err := all.stat(fault.File); err == nil { // not gone meanwhile
			list = append(list, t.name+"/"+fault.Error())
		}
	}
	return list
}

// pathOf is the path of a request below the root.
func pathOf(r *http.Request) string { return "/" + strings.TrimPrefix(r.URL.Path, "/") }

// current reports whether the rules still hold.
func (f *folderRules) current() bool { return f == nil || f.version.Valid() }

// closes reports whether nobody may have a file.
func (f *folderRules) closes(file string) bool {
	if f == nil {
		return false
	}
	_, closed := f.headers.Closed("/" + file)
	return closed
}

// restrictOffer restricts what the lane may repeat to requests for which the rules
// decide the same.
func (f *folderRules) restrictOffer(rule lane.Rule) lane.Rule {
	if f != nil && f.redirects.Hosts() {
		rule.VaryOn = append(rule.VaryOn[:len(rule.VaryOn):len(rule.VaryOn)], "Host")
	}
	return rule
}

// applyHeaders sets the fields that _headers has for a path. file says whether the
// path stands for a file.
func (f *folderRules) applyHeaders(header http.Header, path string, file bool) {
	if f != nil {
		f.headers.Apply(header, path, file)
	}
}

// under is an answer as it is sent for another path than its file's.
func (f *folderRules) under(a *send.Answer, path string, file bool) *send.Answer {
	if f == nil {
		return a
	}
	own := *a
	own.Header = maps.Clone(a.Header)
	f.applyHeaders(own.Header, path, file)
	return &own
}

// find returns what a rule decides about a request.
func (f *folderRules) find(r *http.Request, forced bool) (t rulefile.Target, ok, byQuery bool) {
	return f.redirects.Find(rulefile.Asked{Path: pathOf(r), Query: r.URL.RawQuery, Host: match.Host(r.Host), Secure: r.TLS != nil}, forced)
}

// answers reports whether the rules answer a request, whatever files there are.
func (f *folderRules) answers(r *http.Request) bool {
	if f == nil {
		return false
	}
	_, closed := f.headers.Closed(pathOf(r))
	_, forced, byQuery := f.find(r, true)
	return closed || forced || byQuery
}

// ruledFirst answers by what comes before all files: paths that are closed, and
// forced rules.
func (h *Handler) ruledFirst(w http.ResponseWriter, r *http.Request, rules *folderRules) bool {
	if rules == nil {
		return false
	}
	if _, closed := rules.headers.Closed(pathOf(r)); closed {
		respondStatus(w, r, http.StatusForbidden)
		return true
	}
	if readsOnly(r) {
		return h.ruled(w, r, rules, true)
	}
	t, ok, _ := rules.find(r, h.Has(r.URL.Path))
	if !ok || t.Status < 300 || t.Status >= 400 {
		return false
	}
	h.redirectTo(w, r, rules, t)
	return true
}

// ruled answers by the first rule for a request, of the forced ones or of all; false
// if there is none.
func (h *Handler) ruled(w http.ResponseWriter, r *http.Request, rules *folderRules, forced bool) bool {
	if rules == nil {
		return false
	}
	t, ok, byQuery := rules.find(r, forced)
	if byQuery { // the lane compares no queries
		lane.Decline(r)
	}
	switch {
	case !ok:
		return false
	case t.Status >= 300 && t.Status < 400:
		h.redirectTo(w, r, rules, t)
		return true
	}
	return h.ruledFile(w, r, rules, t, forced)
}

func (h *Handler) redirectTo(w http.ResponseWriter, r *http.Request, rules *folderRules, t rulefile.Target) {
	rules.applyHeaders(w.Header(), pathOf(r), false)
	w.Header()["Cache-Control"] = []string{otherCache} // 301 would be kept for ever
	w.Header()["X-Content-Type-Options"] = nosniff
	guard.SendTo(w, h.location(t), t.Status)
}

// location is where a rule redirects to.
func (h *Handler) location(t rulefile.Target) string {
	if t.To[0] == '/' {
		return h.options.Mount + t.To
	}
	return t.To
}

// ruledFile answers with the file that a rule names; false if it is not there.
func (h *Handler) ruledFile(w http.ResponseWriter, r *http.Request, rules *folderRules, t rulefile.Target, forced bool) bool {
	u, err := url.Parse(t.To)
	if err != nil {
		return false
	}
	name, ok := h.requestName(u)
	if !ok {
		return false
	}
	if rules.closes(name) {
		respondStatus(w, r, http.StatusForbidden)
		return true
	}
	got, err := h.use(name, r.Header)
	if errors.Is(err, errDirectory) {
		got, err = h.use(name+"/", r.Header)
	}
	switch {
	case errors.Is(err, errNotFound):
		return false
	case err != nil:
		h.fail(w, r, name, err)
		return true
	}
	defer got.done()
	if rules.closes(got.snapshot.found.file) {
		respondStatus(w, r, http.StatusForbidden)
		return true
	}
	a := rules.under(got.answer, pathOf(r), t.Status == http.StatusOK)
	if t.Status != http.StatusOK {
		send.ServeStatus(w, r, t.Status, a)
		return true
	}
	if forced && got.offer && rules.current() {
		lane.Offer(r, a, rules.restrictOffer(got.rule()))
	}
	send.Serve(w, r, a)
	return true
}
