package convert

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"millrace/images/codec"
)

// SVG is a drawing without what runs or loads anything: scripts, event handlers, foreign content,
// links, references to other files.
const SVG codec.Format = "svg"

// ErrSVG says why a file is not sent as SVG.
var ErrSVG = errors.New("this SVG is not sent")

const (
	svgSpace   = "http://www.w3.org/2000/svg"
	xlinkSpace = "http://www.w3.org/1999/xlink"
	xmlSpace   = "http://www.w3.org/XML/1998/namespace"
	// maxSVGDepth is how deep elements may be in each other. Drawings have some dozens.
	maxSVGDepth = 500
)

// svgElements are those that draw. An a is what is in it: it links to nothing here.
const svgElements = " svg g a defs symbol use path rect circle ellipse line polyline polygon text tspan textPath title desc " +
	"linearGradient radialGradient stop clipPath mask pattern marker image style switch view " +
	"filter feBlend feColorMatrix feComponentTransfer feComposite feConvolveMatrix feDiffuseLighting feDisplacementMap feDistantLight " +
	"feDropShadow feFlood feFuncA feFuncB feFuncG feFuncR feGaussianBlur feImage feMerge feMergeNode feMorphology feOffset fePointLight " +
	"feSpecularLighting feSpotLight feTile feTurbulence animate animateTransform animateMotion mpath set "

// localURL is what may stand in href: a part of the same file, or an image of pixels.
var localURL = regexp.MustCompile(`^(#[^\s]*|data:image/(png|jpeg|gif|webp|avif);base64,[A-Za-z0-9+/=\s]*)$`)

// loads is what may load something in CSS and in the attributes that hold some of it.
var loads = regexp.MustCompile(`(?i)url\(\s*(['"]?)\s*[^#'"\s]|url\(\s*['"]\s*[^#\s]|@|\\|javascript:|expression|image-set|-moz-binding|behavior|src\(|https?:|</`)

// inner are the rules of CSS that have other rules in them and load nothing by themselves.
var inner = regexp.MustCompile(`@(media|supports|keyframes)\b`)

// sanitizeSVG writes what of a drawing may be sent: elements and attributes that are known to do
// nothing but draw. Others are left out with all that is in them. Errors are of ErrSVG: for what is
// not well-formed, and for entities, which may stand for anything, many times.
func sanitizeSVG(file []byte) ([]byte, error) {
	s := &svgCleaner{in: xml.NewDecoder(bytes.NewReader(file))}
	s.in.CharsetReader = func(string, io.Reader) (io.Reader, error) {
		return nil, errors.New("its encoding is not UTF-8")
	}
	for {
		token, err := s.in.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = s.token(token)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSVG, err)
		}
	}
	if !s.seen {
		return nil, fmt.Errorf("%w: there is no svg element in it", ErrSVG)
	}
	return s.out.Bytes(), nil
}

type svgCleaner struct {
	in      *xml.Decoder
	out     bytes.Buffer
	depth   int
	skipped int          // the depth of the element that is left out; 0: none is
	seen    bool         // the root
	style   bytes.Buffer // of the style element that is being read
	inStyle bool
}

func (s *svgCleaner) token(t xml.Token) error {
	switch t := t.(type) {
	case xml.Directive:
		if bytes.ContainsAny(t, "[<") || bytes.Contains(bytes.ToUpper(t), []byte("ENTITY")) {
			return errors.New("it defines entities")
		}
	case xml.StartElement:
		if s.depth++; s.depth > maxSVGDepth {
			return fmt.Errorf("more than %d elements are in each other", maxSVGDepth)
		}
		return s.start(t)
	case xml.EndElement:
		s.end(t)
		s.depth--
	case xml.CharData:
		switch {
		case s.skipped > 0 || s.depth == 0:
		case s.inStyle:
			s.style.Write(t)
		default:
			s.text(t)
		}
	}
	return nil
}

// text writes what is not markup.
func (s *svgCleaner) text(t []byte) {
	_, _ = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").WriteString(&s.out, string(t)) // a buffer takes everything
}

func (s *svgCleaner) start(e xml.StartElement) error {
	if s.depth == 1 && (e.Name.Local != "svg" || e.Name.Space != svgSpace && e.Name.Space != "") {
		return fmt.Errorf("it begins with %q", e.Name.Local)
	}
	if s.skipped > 0 {
		return nil
	}
	known := (e.Name.Space == svgSpace || e.Name.Space == "") && strings.Contains(svgElements, " "+e.Name.Local+" ")
	if !known || s.inStyle || changesLinks(e) {
		s.skipped = s.depth
		return nil
	}
	s.out.WriteString("<" + e.Name.Local)
	if !s.seen {
		s.seen = true
		s.out.WriteString(` xmlns="` + svgSpace + `" xmlns:xlink="` + xlinkSpace + `"`)
	}
	for _, a := range e.Attr {
		if name := svgAttribute(a, e.Name.Local); name != "" {
			s.out.WriteString(" " + name + `="`)
			if err := xml.EscapeText(&s.out, []byte(a.Value)); err != nil {
				return err
			}
			s.out.WriteString(`"`)
		}
	}
	s.out.WriteString(">")
	s.inStyle = e.Name.Local == "style"
	s.style.Reset()
	return nil
}

// changesLinks reports whether an animation sets what may not be in the file.
func changesLinks(e xml.StartElement) bool {
	for _, a := range e.Attr {
		if a.Name.Local != "attributeName" {
			continue
		}
		if name := strings.ToLower(a.Value); strings.Contains(name, "href") || strings.HasPrefix(strings.TrimSpace(name), "on") || strings.Contains(name, "style") {
			return true
		}
	}
	return false
}

// attributeName is what names of attributes look like that draw.
var attributeName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*$`)

// svgAttribute is the name that an attribute of an element has in the result; "": it is left out.
func svgAttribute(a xml.Attr, element string) string {
	name := a.Name.Local
	switch a.Name.Space {
	case "":
	case xlinkSpace, "xlink":
		if name != "href" {
			return ""
		}
		name = "xlink:href"
	case xmlSpace, "xml":
		if name != "space" && name != "lang" {
			return ""
		}
		return "xml:" + name
	default:
		return ""
	}
	switch {
	case name == "href" || name == "xlink:href":
		if element == "a" || !localURL.MatchString(strings.TrimSpace(a.Value)) {
			return ""
		}
		return name
	case !attributeName.MatchString(name), name == "xmlns", strings.HasPrefix(strings.ToLower(name), "on"), strings.EqualFold(name, "src"), loads.MatchString(a.Value):
		return ""
	}
	return name
}

func (s *svgCleaner) end(e xml.EndElement) {
	if s.skipped > 0 {
		if s.skipped == s.depth {
			s.skipped = 0
		}
		return
	}
	if s.inStyle {
		s.inStyle = false
		// The names of inner rules stay where they are, so that url(@media is what it was.
		if css := s.style.Bytes(); !loads.Match(inner.ReplaceAll(css, []byte("$1"))) {
			s.text(css)
		}
	}
	s.out.WriteString("</" + e.Name.Local + ">")
}
