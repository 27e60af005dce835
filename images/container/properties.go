package container

import (
	"slices"
)

// essential is the bit of an association that says that readers must know the
// property. The number is below it.
const essential = 0x8000

// maxOwn is how many properties an item may have: the count has 8 bits.
const maxOwn = 255

// setProfile makes a colr box of type prof a property of the primary item: ISO/IEC
// 23008-12, 6.5.5, and 14496-12, 12.1.5.
func (a *avifFile) setProfile(icc []byte) error {
	iprp, err := needed(a.boxes, "iprp", 8)
	if err != nil {
		return err
	}
	children, err := parseBoxes(iprp.body, false)
	if err != nil {
		return err
	}
	ipco, err := needed(children, "ipco", 8)
	if err != nil {
		return err
	}
	properties, err := parseBoxes(ipco.body, false)
	if err != nil {
		return err
	}
	ipma, own, err := a.ownProperties(children)
	if err != nil {
		return err
	}
	colr := append([]byte("prof"), icc...)
	replaced := false
	transforms := len(own) // where the first of those stands that change the image
	for n, p := range own {
		number := int(p &^ essential)
		if number > len(properties) {
			return unsound("its picture has the property %d of %d", number, len(properties))
		}
		if number == 0 {
			continue // none: ISO/IEC 23008-12, 9.3.3
		}
		switch x := &properties[number-1]; {
		case x.kind == "colr" && len(x.body) >= 4 && (string(x.body[:4]) == "prof" || string(x.body[:4]) == "rICC"):
			x.body = colr
			replaced = true
		case x.kind == "clap", x.kind == "irot", x.kind == "imir":
			transforms = min(transforms, n)
		}
	}
	if !replaced {
		if len(properties) >= maxBoxes || len(own) >= maxOwn {
			return unsound("there is no room for a further property beside %d, %d of the picture", len(properties), len(own))
		}
		properties = append(properties, box{kind: "colr", body: colr})
		// Properties that describe stand before those that transform: ISO/IEC
		// 23008-12, 6.5.1.
		own = slices.Insert(own, transforms, uint16(len(properties)))
		if ipma.body, err = rewriteAssociations(ipma.body, a.primary, own); err != nil {
			return err
		}
	}
	ipco.body = joinBoxes(properties)
	iprp.body = joinBoxes(children)
	return nil
}

// ownProperties finds the box that has the primary item's associations, and
// those.
func (a *avifFile) ownProperties(children []box) (*box, []uint16, error) {
	for n := range children {
		if children[n].kind != "ipma" {
			continue
		}
		var own []uint16
		found := false
		err := eachAssociation(children[n].body, func(item uint32, list []uint16) {
			if item == a.primary && !found {
				own, found = slices.Clone(list), true
			}
		})
		if err != nil {
			return nil, nil, err
		}
		if found {
			return &children[n], own, nil
		}
	}
	return nil, nil, unsound("its picture has no properties, not even a size")
}

// eachAssociation reads an ipma box: ISO/IEC 23008-12, 9.3.2. The list is used
// again for the next item.
func eachAssociation(body []byte, visit func(item uint32, list []uint16)) error {
	c := cursor{b: body}
	version, flags := c.uint(1), c.uint(3)
	var list [maxOwn]uint16
	for count := c.uint(4); count > 0; count-- {
		item := uint32(c.uint(idSize(version > 0)))
		n := int(c.uint(1))
		for i := range n {
			if flags&1 != 0 {
				list[i] = uint16(c.uint(2))
			} else {
				p := uint16(c.uint(1))
				list[i] = p&0x7f | p&0x80<<8
			}
		}
		if c.short {
			return unsound("its box \"ipma\" is cut off")
		}
		visit(item, list[:n])
	}
	return nil
}

// rewriteAssociations writes an ipma box with another list for the first entry
// of an item. All numbers get 15 bits if one does not fit into 7.
func rewriteAssociations(body []byte, item uint32, own []uint16) ([]byte, error) {
	wide := body[3]&1 != 0 || slices.ContainsFunc(own, func(p uint16) bool { return p&^essential > 0x7f })
	out := make([]byte, 0, 2*len(body)+2*len(own))
	out = append(out, body[:8]...) // version, flags, count
	if wide {
		out[3] |= 1
	}
	replaced := false
	err := eachAssociation(body, func(id uint32, list []uint16) {
		if id == item && !replaced {
			list, replaced = own, true
		}
		out = appendUint(out, uint64(id), idSize(body[0] > 0))
		out = append(out, byte(len(list)))
		for _, p := range list {
			if wide {
				out = appendUint(out, uint64(p), 2)
			} else {
				out = append(out, byte(p&0x7f|p>>8&0x80))
			}
		}
	})
	return out, err
}
