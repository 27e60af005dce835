package subject

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// Nginx finds nginx and its version.
func Nginx(ctx context.Context) (exe, version string, err error) {
	if exe, err = Look("nginx", "nginx-light"); err != nil {
		return "", "", err
	}
	_, version, _ = strings.Cut(Version(ctx, exe, "-v"), "nginx/")
	return exe, version, nil
}

// NginxArgs start nginx in a folder that holds its nginx.conf.
func NginxArgs(dir string) []string {
	// -e: nginx opens an error log before it has read where it should be.
	return []string{"-p", dir, "-e", filepath.Join(dir, "error.log"), "-c", filepath.Join(dir, "nginx.conf")}
}

// WriteNginxConfig makes nginx.conf in dir from the template in a file. The
// template has the fields Dir, User (of the workers; empty: as nginx is started)
// and those that are given.
func WriteNginxConfig(dir, file string, fields map[string]string) error {
	all := map[string]string{"Dir": dir, "User": ""}
	if os.Geteuid() == 0 {
		all["User"] = "root" // else its workers could not enter a private folder
	}
	for name, value := range fields {
		all[name] = value
	}
	for _, value := range all {
		if strings.ContainsAny(value, " \t\r\n;{}\"'\\$#") {
			return fmt.Errorf("%q holds a character that means something in a config of nginx: use another folder for temporary files (TMPDIR)", value)
		}
	}
	return WriteConfig(filepath.Join(dir, "nginx.conf"), file, all)
}

// WriteConfig makes a server's config from the template in a file, which may name
// these fields and no others.
func WriteConfig(name, file string, fields map[string]string) error {
	t, err := template.ParseFiles(file)
	var text strings.Builder
	if err == nil {
		err = t.Option("missingkey=error").Execute(&text, fields)
	}
	if err == nil {
		err = os.WriteFile(name, []byte(text.String()), 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing a server's config: %w", err)
	}
	return nil
}
