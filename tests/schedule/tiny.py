"""A few lines of interpreter, scalar by scalar."""
import math
import numpy as np
from pliant.ir.expr import *
from pliant.ir.expr import Reduce
from pliant.loop.stmt import *
from pliant.loop.stmt import Function

def run(fn, arrays, sizes):
    mem = {}
    env = dict(sizes)
    for b, a in zip(fn.buffers, arrays, strict=True):
        mem[b.name] = a
    S(fn.body, env, mem)

def at(mem, b, idx, env):
    a = mem[b.name]
    for i, d in zip(idx, a.shape):
        assert 0 <= i < d, f"{b.name}{idx} out of {a.shape}"
    return a

def I(x, env): return x.eval(env)

def E(e, env, mem):
    match e:
        case Const(): return e.dtype.numpy.type(e.value)
        case Index(): return I(e.int_, env)
        case Var(): return env[e.name]
        case Load():
            idx = tuple(int(E(i, env, mem)) for i in e.indices)
            return at(mem, e.source, idx, env)[idx]
        case Unary():
            a = E(e.a, env, mem)
            t = type(a)
            f = {"neg": lambda: -a, "abs": lambda: abs(a), "exp": lambda: np.exp(a), "sqrt": lambda: np.sqrt(a), "not": lambda: not a,
                 "isnan": lambda: bool(np.isnan(a)), "tanh": lambda: np.tanh(a)}[e.op]
            return f()
        case Binary():
            a = E(e.a, env, mem)
            if e.op == "and" and e.a.dtype.name == "bool":
                return bool(a) and bool(E(e.b, env, mem))
            b = E(e.b, env, mem)
            import operator as o
            f = {"add": o.add, "sub": o.sub, "mul": o.mul, "div": o.truediv, "floordiv": o.floordiv, "floormod": o.mod, "max": np.maximum, "min": np.minimum,
                 "lt": o.lt, "le": o.le, "eq": o.eq, "ne": o.ne, "or": o.or_}[e.op]
            return f(a, b)
        case Select(): return E(e.a, env, mem) if E(e.cond, env, mem) else E(e.b, env, mem)
        case Cast(): return e.to.numpy.type(E(e.a, env, mem))
        case Guard():
            assert E(e.cond, env, mem), e.message
            return E(e.value, env, mem)
        case Reduce():
            from pliant.loop.reduction import identity, combine
            acc = None
            ax = e.axes
            def go(k):
                nonlocal acc
                if k == len(ax):
                    v = E(e.body, env, mem)
                    op = {"sum": lambda a, b: a + b, "prod": lambda a, b: a * b, "max": np.maximum, "min": np.minimum}[e.combiner]
                    acc = v if acc is None else op(acc, v)
                    return
                for t in range(I(ax[k].extent, env)):
                    env[ax[k].var] = t
                    go(k + 1)
                del env[ax[k].var]
            go(0)
            return E(identity(e.combiner, e.dtype), env, mem) if acc is None else acc
    raise NotImplementedError(type(e))

def S(s, env, mem):
    match s:
        case Nop(): pass
        case For():
            assert s.var not in env, s.var
            for t in range(I(s.extent, env)):
                env[s.var] = t
                S(s.body, env, mem)
            env.pop(s.var, None)
        case Block():
            vals = [I(b, env) for b in s.bindings]
            for it in s.iters: assert it.var not in env, it.var
            inner = {it.var: v for it, v in zip(s.iters, vals)}
            if s.where is not None and not E(s.where, env, mem): return
            for it, v in zip(s.iters, vals):
                env[it.var] = v
            for it, v in zip(s.iters, vals):
                assert 0 <= v < I(it.extent, env), f"{s.name}: {it.var} = {v} not below {it.extent}"
            if s.init is not None and all(v == 0 for it, v in zip(s.iters, vals) if it.kind == "R"):
                S(s.init, env, mem)
            S(s.body, env, mem)
            for it in s.iters: del env[it.var]
        case Store():
            v = E(s.value, env, mem)
            idx = tuple(int(E(i, env, mem)) for i in s.indices)
            at(mem, s.buffer, idx, env)[idx] = v
        case Seq():
            for t in s.stmts: S(t, env, mem)
        case Alloc():
            shape = tuple(I(d, env) for d in s.buffer.shape)
            a = np.zeros(shape, s.buffer.dtype.numpy)
            a[...] = np.nan if s.buffer.dtype.is_float else 77
            assert s.buffer.name not in mem
            mem[s.buffer.name] = a
            S(s.body, env, mem)
            del mem[s.buffer.name]
        case If():
            if E(s.cond, env, mem): S(s.then, env, mem)
            elif s.otherwise is not None: S(s.otherwise, env, mem)
        case Let():
            env[s.var.name] = E(s.value, env, mem)
            S(s.body, env, mem)
            del env[s.var.name]
        case _: raise NotImplementedError(type(s))

def show(s, d=0):
    p = "    " * d
    match s:
        case Function():
            return f"def {s.name}({', '.join(b.name + str(list(b.shape)) for b in s.buffers)}, {', '.join(s.sizes)}):\n" + show(s.body, 1)
        case For(): return f"{p}for {s.var} in {'' if s.kind == 'serial' else s.kind + ' '}{s.extent}:\n" + show(s.body, d + 1)
        case Block():
            t = f"{p}block {s.name}(" + ", ".join(f"{i.kind} {i.var} < {i.extent} = {b}" for i, b in zip(s.iters, s.bindings)) + ")"
            if s.where is not None: t += " where " + ex(s.where)
            t += "\n"
            if s.init is not None: t += f"{p}  init:\n" + show(s.init, d + 1)
            return t + show(s.body, d + 1)
        case Store(): return f"{p}{s.buffer.name}[{', '.join(map(ex, s.indices))}] = {ex(s.value)}\n"
        case Seq(): return "".join(show(t, d) for t in s.stmts)
        case Alloc(): return f"{p}alloc {s.buffer.name}{list(s.buffer.shape)} {s.buffer.scope}\n" + show(s.body, d)
        case If(): return f"{p}if {ex(s.cond)}:\n" + show(s.then, d + 1) + (f"{p}else:\n" + show(s.otherwise, d + 1) if s.otherwise else "")
        case Let(): return f"{p}let {s.var.name} = {ex(s.value)}\n" + show(s.body, d)
        case Nop(): return f"{p}pass\n"
        case Invoke(): return f"{p}{s.callee}({', '.join(ex(a) for a in s.args)})\n"
    return repr(s)

def ex(e):
    match e:
        case Const(): return str(e.value)
        case Index(): return f"{e.int_}"
        case Var(): return e.name
        case Load(): return f"{e.source.name}[{', '.join(map(ex, e.indices))}]"
        case BufferRef(): return f"&{e.buffer.name}[{', '.join(map(ex, e.indices))}]"
        case Unary(): return f"{e.op}({ex(e.a)})"
        case Binary():
            o = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "eq": "=="}.get(e.op)
            return f"({ex(e.a)} {o} {ex(e.b)})" if o else f"{e.op}({ex(e.a)}, {ex(e.b)})"
        case Select(): return f"({ex(e.a)} if {ex(e.cond)} else {ex(e.b)})"
        case Reduce(): return f"{e.combiner}[{', '.join(a.var + '<' + str(a.extent) for a in e.axes)}]({ex(e.body)})"
        case Guard(): return f"guard({ex(e.value)})"
    return repr(e)
