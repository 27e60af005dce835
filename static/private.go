package static

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"millrace/internal/route/rulefile"
)

const (
	// privateOff in Options.Private says that every file may be seen,
	// privateDefault stands for the list that is in use without one.
	privateOff     = "off"
	privateDefault = "default"

	// maxWrapped is how many endings of copies a name may have: a.sql.old.gz.
	maxWrapped = 4
	// maxSurveyed bounds how many files are looked at for Warnings, maxNamed how
	// many of them are named.
	maxSurveyed = 4096
	maxNamed    = 5
)

// privateNames is what Options.Private is by default: sources that another
// server would run, settings, dumps, keys, and what version control keeps.
var privateNames = []string{
	"*.php", "*.php3", "*.php4", "*.php5", "*.php7", "*.php8", "*.phtml", "*.phps", "*.phar", "*.inc", "*.asp", "*.aspx", "*.jsp", "*.cgi",
	".env", ".env.*", "*.env", ".htaccess", ".htpasswd", "htpasswd", ".npmrc", ".netrc", ".pgpass", ".my.cnf", "web.config", "*.tfstate",
	"*.sql", "*.sqlite", "*.sqlite3", "*.dump", "*.rdb",
	"*.key", "*.pem", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.p8", "*.ppk", "*.kdb", "*.kdbx", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk",
	".git", ".hg", ".svn", ".ssh", ".aws", ".gnupg",
	rulefile.RedirectsName, rulefile.HeadersName,
}

// wrappings are the endings of copies, which hold what the original does: of
// editors and people, of compression, and what a database keeps beside its file.
var wrappings = []string{
	"~", ".bak", ".backup", ".old", ".orig", ".save", ".swp", ".swo", ".copy", " copy", " (copy)", ".part", ".dist", "#",
	".gz", ".br", ".zst", ".zstd", ".bz2", ".xz", ".lzma", ".lz4", ".z", ".zip", ".7z", ".rar", ".tar", ".tgz",
	"-wal", "-shm", "-journal", ".", " ", // the last two are nothing to some file systems
}

// private are the names that nobody may ask for.
type private struct {
	exact, endings map[string]bool
	patterns       []string
}

func newPrivate(names []string) *private {
	p := &private{exact: map[string]bool{}, endings: map[string]bool{}}
	if len(names) == 0 {
		names = []string{privateDefault}
	}
	for _, name := range names {
		switch name {
		case privateOff:
		case privateDefault:
			for _, one := range privateNames {
				p.add(one)
			}
		default:
			p.add(name)
		}
	}
	return p
}

// privates are the names of the options; the files with rules are always among
// them where they are obeyed.
func (o Options) privates() *private {
	p := newPrivate(o.Private)
	if o.RuleFiles {
		p.add(rulefile.RedirectsName)
		p.add(rulefile.HeadersName)
	}
	return p
}

func (p *private) add(name string) {
	name = strings.ToLower(name)
	ending, starred := strings.CutPrefix(name, "*")
	switch {
	case !strings.ContainsAny(name, `*?[\`):
		p.exact[name] = true
	case starred && path.Ext(ending) == ending && !strings.ContainsAny(ending, `*?[\`):
		p.endings[ending] = true
	default:
		p.patterns = append(p.patterns, name)
	}
}

// covers reports whether a name, or a folder on the way to it, is private.
// Upper and lower case are one: some file systems see no difference.
func (p *private) covers(file string) bool {
	for segment := range strings.SplitSeq(file, "/") {
		if p.segment(strings.ToLower(segment)) {
			return true
		}
	}
	return false
}

func (p *private) segment(name string) bool {
	for range maxWrapped + 1 {
		if p.exact[name] || p.endings[path.Ext(name)] {
			return true
		}
		for _, pattern := range p.patterns {
			if ok, _ := path.Match(pattern, name); ok { // Check has seen to its form
				return true
			}
		}
		inner := unwrap(name)
		if inner == name {
			return false
		}
		name = inner
	}
	return false
}

// unwrap is the name of what a file is a copy of, or the name itself.
func unwrap(name string) string {
	if number := strings.TrimRight(name, "0123456789"); strings.HasSuffix(number, ".") { // of rotated copies: dump.sql.1
		return strings.TrimSuffix(number, ".")
	}
	for _, w := range wrappings {
		if inner, ok := strings.CutSuffix(name, w); ok {
			return strings.TrimPrefix(inner, "#") // #config.php# is Emacs's
		}
	}
	return name
}

// Hides reports whether the name of a file keeps it from being served.
func (o Options) Hides(name string) bool { return o.Hider()(name) }

// Hider is Hides for many names.
func (o Options) Hider() func(name string) bool {
	p := o.privates()
	return func(name string) bool { return !o.Hidden && hidden(name) || p.covers(name) }
}

// Warnings says what the operator should know about the folder: files in it
// that are kept back, because they would give secrets away, and a page for what
// is not found that is not there itself. It looks at some thousand files, but not at those with the
// endings in run, which another job runs.
func (o Options) Warnings(run ...string) (all []string) {
	trees, err := openTrees(o.Folders())
	if err != nil {
		return nil // Open says so
	}
	defer trees.close()
	for _, t := range trees {
		all = append(all, o.keptBack(t, run)...)
	}
	folders := strings.Join(o.Folders(), ", ")
	if found := trees.ruleFiles(); len(found) > 0 && !o.RuleFiles {
		all = append(all, "the folder "+folders+" has "+strings.Join(found, " and ")+", which nothing obeys: say static.rule_files: true, or remove it")
	}
	if page := strings.TrimPrefix(o.NotFound, "/"); page != "" {
		if _, _, err := trees.stat(page); err != nil {
			all = append(all, "the page for what is not found (not_found) is not there itself: "+path.Join(o.Root, page))
		}
	}
	return all
}

// keptBack says which files of one folder look like secrets.
func (o Options) keptBack(t *tree, run []string) []string {
	p, left, more := o.privates(), maxSurveyed, 0
	var names []string
	_ = t.walk(".", func(name string, d fs.DirEntry) error { // what cannot be read cannot be served
		left--
		switch {
		case left < 0:
			return fs.SkipAll
		case name != "." && d.IsDir() && hidden(name):
			return fs.SkipDir
		case slices.Contains(run, path.Ext(name)) && !p.covers(path.Dir(name)):
		case d.IsDir() || !p.covers(name) || name == rulefile.RedirectsName || name == rulefile.HeadersName:
		case len(names) == maxNamed:
			more++
		default:
			names = append(names, name)
		}
		return nil
	})
	if len(names) == 0 {
		return nil
	}
	text := strings.Join(names, ", ")
	if more > 0 {
		text += ", …"
	}
	return []string{"files in " + t.name + " look like sources or secrets and are not served: " + text +
		"; keep them in another folder, or change the list with static.private"}
}

// Packs is what decides which names a packed site needs, by the path below the root:
// those that may be asked for, and the files with rules that are obeyed.
func (o Options) Packs() func(name string) bool {
	p := o.privates()
	return func(name string) bool {
		if name == rulefile.RedirectsName || name == rulefile.HeadersName {
			return o.RuleFiles
		}
		return (o.Hidden || !hidden(name)) && !p.covers(name)
	}
}
