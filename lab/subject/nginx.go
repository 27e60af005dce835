package subject

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Nginx finds nginx and its version.
func Nginx(ctx context.Context) (exe, version string, err error) {
	if exe, err = Look("nginx", "nginx-light"); err != nil {
		return "", "", err
	}
	_, version, _ = strings.Cut(Version(ctx, exe, "-v"), "nginx/")
	return exe, version, nil
}

// WriteNginxConfig makes nginx.conf in dir from the template in a file. The
// template has the fields Dir, User (of the workers; empty: as nginx is started),
// NoLog ("off" where Log is empty) and those that are given.
func WriteNginxConfig(dir, file string, fields map[string]string) error {
	all := map[string]string{"Dir": dir, "User": ""}
	if os.Geteuid() == 0 {
		all["User"] = "root" // else its workers could not enter a private folder
	}
	maps.Copy(all, fields)
	all["NoLog"] = ""
	if all["Log"] == "" {
		all["NoLog"] = "off"
	}
	for _, value := range all {
		if strings.ContainsAny(value, " \t\r\n;{}\"'\\$#") {
			return fmt.Errorf("%q holds a character that means something in a config of nginx: use another folder for temporary files (TMPDIR)", value)
		}
	}
	return WriteConfig(filepath.Join(dir, "nginx.conf"), file, all)
}

// field is a place in a template.
var field = regexp.MustCompile(`{{\.(\w+)}}`)

// WriteConfig makes a server's config from the template in a file. {{.Name}} stands
// for a field, which must be one of these. A line with a field that is empty is
// left out.
func WriteConfig(name, file string, fields map[string]string) error {
	template, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("writing a server's config: %w", err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(template)) {
		empty, unknown := false, ""
		line = field.ReplaceAllStringFunc(line, func(place string) string {
			name := field.FindStringSubmatch(place)[1]
			value, ok := fields[name]
			if !ok {
				unknown = name
			}
			empty = empty || value == ""
			return value
		})
		switch {
		case unknown != "":
			return fmt.Errorf("writing a server's config: %s has no field %q", file, unknown)
		case strings.Contains(line, "{{"):
			return fmt.Errorf("writing a server's config: %s: {{.Name}} is all that a template can have: %s", file, strings.TrimSpace(line))
		case !empty:
			text.WriteString(line)
		}
	}
	if err := os.WriteFile(name, []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("writing a server's config: %w", err)
	}
	return nil
}
