package config

import (
	"fmt"
	"go/doc/comment"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

// manualFile is the manual page of the config's keys.
const manualFile = "docs/man/millrace.yaml.5"

// manualPage is millrace.yaml(5) in roff with the macros of man(7): every key with what it
// takes and what it does.
func manualPage(comments map[string]string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, ".\\\" Made from the code: %s\n.TH MILLRACE.YAML 5 \"\" \"millrace\" \"File Formats\"\n", roff(refresh))
	b.WriteString(".SH NAME\nmillrace.yaml \\- the config of millrace\n.SH DESCRIPTION\n")
	roffText(&b, "A c"+strings.TrimPrefix(comments["millrace/internal/config.Config"], "C"))
	b.WriteString(".PP\n\\fBmillrace init\\fR writes a file to start from, \\fBmillrace check\\fR reports all that is wrong with one, and \\fBmillrace docs\\fR shows the manual of each job.\n.PP\n.nf\n")
	for _, line := range []string{"listen: :8080", "sites:", "  - routes:", "      /: {static: {root: ./public}}"} {
		b.WriteString(".RS\n" + roff(line) + "\n.RE\n")
	}
	b.WriteString(".fi\n")
	roffSection(&b, comments, reflect.TypeFor[Config](), "")
	b.WriteString(".SH SEE ALSO\nmillrace(1)\n")
	return []byte(b.String())
}

// roffSection writes one struct's keys, and then the structs in it, as section does.
func roffSection(b *strings.Builder, comments map[string]string, s reflect.Type, path string) {
	title := "TOP LEVEL"
	if path != "" {
		title = path
	}
	fmt.Fprintf(b, ".SH %s\n", roff(title))
	if elsewhere := asJob(s); elsewhere != "" && elsewhere != path {
		fmt.Fprintf(b, "All keys of %s.\n", roff(elsewhere))
		return
	}
	below, reported := []func(){}, false
	for _, f := range fieldsOf(s) {
		t := s.FieldByIndex(f.index).Type
		if elsewhere := inlined(s, f); elsewhere != "" {
			if !reported {
				fmt.Fprintf(b, "All keys of %s, and:\n", roff(elsewhere))
			}
			reported = true
			continue
		}
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR: \\fI%s\\fR\n", roff(f.name), roff(takes(t)))
		roffText(b, describe(comments, s, f))
		inner, at := base(t), strings.TrimPrefix(path+"."+f.name, ".")
		if inner.Kind() != reflect.Struct || isText(inner) || len(fieldsOf(inner)) == 0 {
			continue
		}
		switch t.Kind() {
		case reflect.Slice:
			at += "[]"
		case reflect.Map:
			at += ".PATH"
		}
		below = append(below, func() { roffSection(b, comments, inner, at) })
	}
	for _, write := range below {
		write()
	}
}

// roffText writes a comment: its paragraphs, and its examples as they stand.
func roffText(b *strings.Builder, text string) {
	var p comment.Parser
	plain := string((&comment.Printer{TextWidth: -1}).Text(p.Parse(strings.ReplaceAll(text, "`", ""))))
	code := false
	for i, line := range strings.Split(strings.TrimSpace(plain), "\n") {
		example := strings.HasPrefix(line, "\t")
		switch {
		case example && !code:
			b.WriteString(".nf\n")
		case !example && code && line != "":
			b.WriteString(".fi\n")
		}
		if example || line != "" {
			code = example
		}
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(roff(line) + "\n")
		} else if i > 0 && !code {
			b.WriteString(".IP\n")
		}
	}
	if code {
		b.WriteString(".fi\n")
	}
}

// roff escapes what the formatter would take for a request or change.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

// TestManualPage: the page has every key, and the formatter finds nothing wrong with it.
func TestManualPage(t *testing.T) {
	t.Chdir("../..")
	page := string(manualPage(readComments(t)))
	for _, s := range structs(reflect.TypeFor[Config]()) {
		for _, f := range fieldsOf(s) {
			if !strings.Contains(page, `\fB`+roff(f.name)+`\fR: `) {
				t.Errorf("%s lacks the key %s of %s", manualFile, f.name, s)
			}
		}
	}
	if _, err := exec.LookPath("groff"); err != nil {
		t.Skip("groff is not installed")
	}
	cmd := exec.CommandContext(t.Context(), "groff", "-Kutf8", "-man", "-Tutf8", "-ww", "-z")
	cmd.Stdin = strings.NewReader(page)
	if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
		t.Errorf("%v: %s", err, said)
	}
}
