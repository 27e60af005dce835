package docscmd

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// manual is all pages, rendered.
type manual struct {
	files fs.FS
	pages []*page // by title; decisions come last
}

// page is one file of Markdown.
type page struct {
	name     string // cache, coming-from/nginx
	title    string
	source   []byte
	html     template.HTML
	sections []section
}

// section is a heading and what stands below it, up to the next one.
type section struct {
	page  *page
	id    string // "" for the page's own title
	title string
	text  string
	lower string // title and text in lower case, for the search
}

// URL is where the section is in the site.
func (s section) URL() string {
	if s.id == "" {
		return "/" + s.page.name
	}
	return "/" + s.page.name + "#" + s.id
}

// Page is the title of the section's page.
func (s section) Page() string { return s.page.title }

// Title is the section's own.
func (s section) Title() string { return s.title }

// open reads the manual.
func open(files fs.FS) (*manual, error) {
	m := &manual{files: files}
	var names []string
	err := fs.WalkDir(files, ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".md" {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the manual: %w", err)
	}
	for _, name := range names {
		p, err := m.read(name)
		if err != nil {
			return nil, fmt.Errorf("reading the manual's page %s: %w", name, err)
		}
		m.pages = append(m.pages, p)
	}
	folder := func(p *page) int { return slices.Index([]string{"coming-from", ".", "decisions"}, path.Dir(p.name)) }
	slices.SortStableFunc(m.pages, func(a, b *page) int {
		if folder(a) < 2 && folder(b) < 2 {
			return cmp.Compare(strings.ToLower(a.title), strings.ToLower(b.title))
		}
		return cmp.Or(cmp.Compare(folder(a), folder(b)), cmp.Compare(a.name, b.name))
	})
	return m, nil
}

// read reads and renders one page.
func (m *manual) read(file string) (*page, error) {
	source, err := fs.ReadFile(m.files, file)
	if err != nil {
		return nil, err //nolint:wrapcheck // the caller says which file
	}
	p := &page{name: strings.TrimSuffix(file, ".md"), source: source}
	md := goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	root := md.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(ids{}))))
	m.link(file, root, source)
	p.divide(root)
	var b bytes.Buffer
	if err := md.Renderer().Render(&b, source, root); err != nil {
		return nil, err //nolint:wrapcheck // as above
	}
	p.html = template.HTML(b.String()) //nolint:gosec // of our own pages; goldmark leaves raw HTML out
	return p, nil
}

// link makes the links between files those between pages. What a link leads to outside of
// the manual (source code, benchmarks) is not there: its text stays, with the path behind
// it.
func (m *manual) link(file string, root ast.Node, source []byte) {
	var gone []ast.Node
	_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		var to *[]byte
		switch n := n.(type) {
		case *ast.Link:
			to = &n.Destination
		case *ast.Image:
			to = &n.Destination
		}
		if !entering || to == nil || bytes.Contains(*to, []byte(":")) || bytes.HasPrefix(*to, []byte("#")) {
			return ast.WalkContinue, nil
		}
		name, id, _ := strings.Cut(string(*to), "#")
		name = path.Join(path.Dir(file), name)
		if _, err := fs.Stat(m.files, name); err != nil {
			gone = append(gone, n)
			return ast.WalkContinue, nil
		}
		url := "/" + strings.TrimSuffix(name, ".md")
		if id != "" {
			url += "#" + id
		}
		*to = []byte(url)
		return ast.WalkContinue, nil
	})
	for _, n := range gone {
		parent, label := n.Parent(), plainText(n, source)
		if l, ok := n.(*ast.Link); ok {
			name, _, _ := strings.Cut(string(l.Destination), "#")
			if name = path.Join("docs", path.Dir(file), name); !strings.Contains(label, path.Base(name)) {
				label += " (" + name + ")"
			}
		}
		parent.ReplaceChild(parent, n, ast.NewString([]byte(label)))
	}
}

// divide divides a page into sections.
func (p *page) divide(root ast.Node) {
	now := section{page: p}
	var words strings.Builder
	flush := func() {
		now.text = strings.Join(strings.Fields(words.String()), " ")
		if now.lower = strings.ToLower(now.title + " " + now.text); now.title != "" {
			p.sections = append(p.sections, now)
		}
		words.Reset()
	}
	for n := root.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if !ok {
			words.WriteString(plainText(n, p.source) + "\n")
			continue
		}
		flush()
		now = section{page: p, title: plainText(n, p.source)}
		if h.Level == 1 {
			p.title = now.title
		} else if id, ok := n.AttributeString("id"); ok {
			now.id = string(id.([]byte))
		}
	}
	flush()
}

// plainText is what a node says.
func plainText(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Text:
			b.Write(n.Segment.Value(source))
			if n.SoftLineBreak() || n.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(n.Value)
		case *ast.AutoLink:
			b.Write(n.URL(source))
		case *ast.CodeBlock, *ast.FencedCodeBlock:
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				b.Write(line.Value(source))
			}
		}
		if n.Type() == ast.TypeBlock && b.Len() > 0 {
			b.WriteByte(' ')
		}
		return ast.WalkContinue, nil
	})
	return strings.TrimSpace(b.String())
}

// ids makes the ids of headings as code hosts do, whose links the pages have: of "What it
// costs: `ttl`", what-it-costs-ttl. A second one of the same text ends in -1.
type ids map[string]int

// Generate implements [parser.IDs].
func (a ids) Generate(value []byte, _ ast.NodeKind) []byte {
	id := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, linkText(string(value)))
	n := a[id]
	if a[id]++; n > 0 {
		id = fmt.Sprintf("%s-%d", id, n)
	}
	return []byte(id)
}

// Put implements [parser.IDs].
func (a ids) Put([]byte) {}

// linkText leaves the addresses of links out of a heading's source.
func linkText(s string) string {
	for {
		before, rest, ok := strings.Cut(s, "](")
		if !ok {
			return s
		}
		_, after, _ := strings.Cut(rest, ")")
		s = before + after
	}
}

// search lists the sections that have all words, those first whose titles have them.
func (m *manual) search(query string) (found []section) {
	const most = 50
	words := strings.Fields(strings.ToLower(query))
	if len(words) == 0 {
		return nil
	}
	score := func(s section) (n int) {
		for _, w := range words {
			switch {
			case strings.Contains(strings.ToLower(s.title), w):
				n += 100
			case strings.Contains(strings.ToLower(s.page.title), w):
				n += 20
			}
			n += min(strings.Count(s.lower, w), 10)
		}
		if path.Dir(s.page.name) == "decisions" {
			n -= 200 // for developers
		}
		return n
	}
	for _, p := range m.pages {
		for _, s := range p.sections {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(s.lower, w) }) {
				found = append(found, s)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b section) int { return cmp.Compare(score(b), score(a)) })
	return found[:min(len(found), most)]
}

// Says is a piece of the section around the first word of a query.
func (s section) Says(query string) string {
	const around = 160
	first, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(query)), " ")
	text := s.text
	at := min(max(strings.Index(strings.ToLower(text), first)-around/2, 0), len(text))
	piece := text[at:min(at+2*around, len(text))]
	if at > 0 {
		_, piece, _ = strings.Cut(piece, " ")
		piece = "… " + piece
	}
	if end := strings.LastIndexByte(piece, ' '); end > 0 && at+2*around < len(text) {
		piece = piece[:end] + " …"
	}
	return strings.ToValidUTF8(piece, "")
}
