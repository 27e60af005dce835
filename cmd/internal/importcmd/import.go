// Package importcmd has the verbs that bring configs of other servers along, and
// compare what both answer.
package importcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"millrace/cmd/internal/cli"
	"millrace/importer/apache"
	"millrace/importer/caddy"
	"millrace/importer/draft"
	"millrace/importer/nginx"
	"millrace/importer/plan"
	"millrace/internal/config"
	"millrace/internal/engine"
)

// Command is `millrace import`.
type Command struct {
	Nginx  Nginx  `cmd:"" help:"Write a config that does what one of nginx does."`
	Caddy  Caddy  `cmd:"" help:"Write a config that does what a Caddyfile does."`
	Apache Apache `cmd:"" help:"Write a config that does what one of Apache does, or a .htaccess."`
}

// output is where a config is written.
type output struct {
	Output string `short:"o" placeholder:"FILE" complete:"file" help:"Where to write the config. Default the standard output."`
	Force  bool   `short:"f" help:"Overwrite the file if it exists."`
}

// Nginx is `millrace import nginx`.
type Nginx struct {
	File   string `arg:"" optional:"" default:"/etc/nginx/nginx.conf" complete:"file" help:"The config of nginx; what it includes is read as well. Default /etc/nginx/nginx.conf."`
	Prefix string `default:"/usr/share/nginx" placeholder:"DIR" complete:"dir" help:"The folder that relative roots are in, as nginx -V says (--prefix). Default /usr/share/nginx."`

	output `embed:""`
}

// Run writes the config, and says what was not carried over.
func (c *Nginx) Run(s cli.Streams) error {
	node, report, err := FromNginx(c.File, c.Prefix)
	if _, missing := os.Stat(c.File); errors.Is(err, errNoServer) || missing != nil {
		return cli.Failure(err, "name the file that nginx starts with, as nginx -V says (--conf-path): millrace import nginx /etc/nginx/nginx.conf")
	}
	if err != nil {
		return cli.Failure(err, "does nginx take it? nginx -t -c "+c.File)
	}
	return c.write(s, "millrace import nginx "+c.File, node, report)
}

// Caddy is `millrace import caddy`.
type Caddy struct {
	File string `arg:"" optional:"" default:"/etc/caddy/Caddyfile" complete:"file" help:"The Caddyfile; what it imports is read as well. Default /etc/caddy/Caddyfile."`

	output `embed:""`
}

// Run writes the config, and says what was not carried over.
func (c *Caddy) Run(s cli.Streams) error {
	node, report, err := FromCaddy(c.File)
	if err != nil {
		return cli.Failure(err, "does Caddy take it? caddy validate --config "+c.File)
	}
	return c.write(s, "millrace import caddy "+c.File, node, report)
}

// Apache is `millrace import apache`.
type Apache struct {
	File string `arg:"" optional:"" default:"/etc/apache2/apache2.conf" complete:"file" help:"The config of Apache, or a .htaccess; what it includes, and the .htaccess files of its folders, are read as well. Default /etc/apache2/apache2.conf."`

	ApacheOptions `embed:""`
	output        `embed:""`
}

// ApacheOptions say what a config of Apache does not.
type ApacheOptions struct {
	ServerRoot string   `placeholder:"DIR" complete:"dir" help:"The folder of Apache's relative names. Default: the config's."`
	Hostname   []string `placeholder:"NAME" help:"A name of the site, for a .htaccess. May be repeated."`
	PHP        string   `name:"php" default:"/run/php/php-fpm.sock" placeholder:"SOCKET" complete:"file" help:"Where php-fpm listens, if the config does not say. Default /run/php/php-fpm.sock."`
}

// Run writes the config, and says what was not carried over.
func (c *Apache) Run(s cli.Streams) error {
	list, o, err := ReadApache(c.File, c.ApacheOptions)
	if err != nil {
		return cli.Failure(err, "does Apache take it? apachectl configtest")
	}
	node, report := apache.Translate(list, o)
	return c.write(s, "millrace import apache "+c.File, node, report)
}

// ReadApache reads a config of Apache, or a .htaccess, and says how it is to be
// translated.
func ReadApache(file string, more ApacheOptions) ([]*draft.Directive, apache.Options, error) {
	o := apache.Options{Hosts: more.Hostname, PHP: more.PHP}
	name, err := filepath.Abs(file)
	if err != nil {
		return nil, o, fmt.Errorf("reading the config: %w", err)
	}
	if filepath.Base(name) == apache.Htaccess {
		o.Root = filepath.Dir(name)
	}
	list, err := apache.Parse(name, more.ServerRoot, draft.Files{Read: os.ReadFile, Glob: filepath.Glob})
	return list, o, err //nolint:wrapcheck // names file and line
}

// FromCaddy translates a Caddyfile.
func FromCaddy(file string) (*draft.Node, *draft.Report, error) {
	name, err := filepath.Abs(file)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the Caddyfile: %w", err)
	}
	config, err := caddy.Parse(name, draft.Files{Read: os.ReadFile, Glob: filepath.Glob, Env: os.Getenv})
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // names file and line
	}
	node, report := caddy.Translate(config, caddy.Options{Dir: filepath.Dir(name)})
	return node, report, nil
}

// errNoServer is what is wrong with a config that serves nothing.
var errNoServer = errors.New("there is no server block that serves HTTP, in it or in what it includes")

// FromNginx translates a config of nginx.
func FromNginx(file, prefix string) (*draft.Node, *draft.Report, error) {
	name, err := filepath.Abs(file)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the config: %w", err)
	}
	list, err := nginx.Parse(name, draft.Files{Read: os.ReadFile, Glob: filepath.Glob})
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // names file and line
	}
	if err := nginx.Check(list); err != nil {
		return nil, nil, err //nolint:wrapcheck // names file and line
	}
	node, report := nginx.Translate(list, nginx.Options{Dir: filepath.Dir(name), Prefix: prefix})
	if node.Get("sites").Len() == 0 {
		return nil, nil, fmt.Errorf("%s: %w", file, errNoServer)
	}
	return node, report, nil
}

// write writes a config with the report in its head, and says on the standard
// error what is left to do.
func (o output) write(s cli.Streams, command string, node *draft.Node, report *draft.Report) error {
	title := "Written by: " + command
	text, refused := checked(cmp.Or(strings.TrimPrefix(o.Output, "-"), config.FileName), title, node, report)
	name, next := o.Output, "look at the head of the file, then: millrace check "+o.Output
	if name == "" || name == "-" {
		name, next = config.FileName, "to write it to a file: "+command+" -o "+config.FileName
		if _, err := io.WriteString(s.Out, text); err != nil {
			return fmt.Errorf("writing the config: %w", err)
		}
	} else if err := writeFile(name, text, o.Force, command); err != nil {
		return err
	}
	for _, line := range report.UntranslatedLines() {
		s.Print("%s\n", line)
	}
	s.Print("%s: %d lines translated, %d replaced by defaults, %d not carried over\n", name, report.Count(draft.Translated), report.Count(draft.Defaulted), report.Count(draft.Untranslated))
	if refused != nil {
		s.Print("%v\n", refused)
		return cli.Failure(fmt.Errorf("%s cannot be used as it is", name), "it is written: change the lines above until millrace check "+name+" says ok")
	}
	s.Print("  next: %s\n", next)
	return nil
}

// checked is a config as it is written. What check refuses of it is taken out, and listed;
// err is what is left: files that are not here, and what a person must decide.
func checked(name, title string, node *draft.Node, report *draft.Report) (text string, err error) {
	const most = 1000 // one after another: the mistakes of later rules may be those of earlier ones
	for range most {
		text = report.File(title, node)
		cfg, err := config.Parse(name, []byte(text))
		if err == nil {
			return report.File(title, node.Share()), engine.Check(cfg, nil) //nolint:wrapcheck // as check says it
		}
		found, _ := errors.AsType[config.Findings](err)
		i := slices.IndexFunc(found, func(f config.Finding) bool { return !f.Missing && f.Line > 0 })
		head := strings.Count(text, "\n") - strings.Count(node.String(), "\n")
		if i < 0 || !plan.Repair(node, report, found[i].Line-1-head, found[i].Message) {
			return text, err
		}
	}
	return text, err
}

func writeFile(name, text string, force bool, command string) error {
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if force {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(name, flags, 0o644)
	switch {
	case errors.Is(err, fs.ErrExist):
		return cli.Failure(fmt.Errorf("%s exists already", name), "to overwrite it: "+command+" --force -o "+name)
	case err != nil:
		return fmt.Errorf("writing the config: %w", err)
	}
	_, err = io.WriteString(f, text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing the config: %w", err)
	}
	return nil
}

// Examples end the help of the verbs.
func Examples() cli.Examples {
	nginx := []string{"millrace import nginx /etc/nginx/nginx.conf -o millrace.yaml", "millrace compare-config --nginx /etc/nginx/nginx.conf"}
	return cli.Examples{
		"import": nginx, "import nginx": nginx,
		"import caddy":   {"millrace import caddy /etc/caddy/Caddyfile -o millrace.yaml"},
		"import apache":  {"millrace import apache /etc/apache2/apache2.conf -o millrace.yaml", "millrace import apache /var/www/html/.htaccess --hostname example.org -o millrace.yaml", "millrace compare-config --apache /etc/apache2/apache2.conf"},
		"compare-config": {"millrace compare-config --nginx /etc/nginx/nginx.conf --log /var/log/nginx/access.log"},
	}
}
