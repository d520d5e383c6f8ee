"""The operator classes of `tiercel.ops`: `ops.Split(axis=1, output_num=4)(x)`, `ops.MatMul()(a, b)`.

One line a class: its name, the row it is a spelling of, what its instances are called with, and what it is
constructed with. Both are signatures as in `table.function`: words are row parameters, `own=row` renames a constructor
argument. What neither names keeps the row's default.
"""

from __future__ import annotations

from typing import Final

from tiercel.operators.table import Spelling, ops_class

# Class, row, call, constructor.
_CLASSES: Final = """
    Add             add             | x y               |
    Sub             subtract        | x y               |
    Mul             multiply        | x y               |
    Div             divide          | x y               |
    RealDiv         divide          | x y               |
    FloorDiv        floor_divide    | x y               |
    Mod             remainder       | x y               |
    Pow             power           | x y               |
    Neg             negative        | x                 |
    Abs             absolute        | x                 |
    Sign            sign            | x                 |
    Maximum         maximum         | x y               |
    Minimum         minimum         | x y               |
    Equal           equal           | x y               |
    NotEqual        not_equal       | x y               |
    Less            less            | x y               |
    LessEqual       less_equal      | x y               |
    Greater         greater         | x y               |
    GreaterEqual    greater_equal   | x y               |
    LogicalAnd      logical_and     | x y               |
    LogicalOr       logical_or      | x y               |
    LogicalXor      logical_xor     | x y               |
    LogicalNot      logical_not     | x                 |
    BitwiseAnd      bitwise_and     | x y               |
    BitwiseOr       bitwise_or      | x y               |
    BitwiseXor      bitwise_xor     | x y               |
    Invert          invert          | x                 |
    LeftShift       left_shift      | x y               |
    RightShift      right_shift     | x y               |

    Exp             exp             | x                 |
    Exp2            exp2            | x                 |
    Expm1           expm1           | x                 |
    Log             log             | x                 |
    Log2            log2            | x                 |
    Log10           log10           | x                 |
    Log1p           log1p           | x                 |
    Sqrt            sqrt            | x                 |
    Rsqrt           rsqrt           | x                 |
    Square          square          | x                 |
    Reciprocal      reciprocal      | x                 |
    Hypot           hypot           | x y               |
    Sin             sin             | x                 |
    Cos             cos             | x                 |
    Tan             tan             | x                 |
    Asin            arcsin          | x                 |
    Acos            arccos          | x                 |
    Atan            arctan          | x                 |
    Atan2           arctan2         | x y               |
    Sinh            sinh            | x                 |
    Cosh            cosh            | x                 |
    Tanh            tanh            | x                 |
    Asinh           arcsinh         | x                 |
    Acosh           arccosh         | x                 |
    Atanh           arctanh         | x                 |
    Floor           floor           | x                 |
    Ceil            ceil            | x                 |
    Rint            rint            | x                 |
    Trunc           trunc           | x                 |
    Round           round           | x                 | decimals
    Clip            clip            | x min max         |
    IsNan           isnan           | x                 |
    IsInf           isinf           | x                 |
    IsFinite        isfinite        | x                 |
    Real            real            | x                 |
    Imag            imag            | x                 |
    Conj            conj            | x                 |
    Angle           angle           | x                 | deg
    Select          where           | condition x y     |
    Where           where           | condition x y     |
    Fma             fma             | x y z             |
    Cast            astype          | x dtype           |
    Erf             erf             | x                 |
    Erfc            erfc            | x                 |

    Sigmoid         sigmoid         | x                 |
    ReLU            relu            | x                 |
    SiLU            silu            | x                 |
    GeLU            gelu            | x                 | approximate
    Softplus        softplus        | x                 |
    LeakyReLU       leaky_relu      | x                 | negative_slope
    Elu             elu             | x                 | alpha
    Softmax         softmax         | x                 | axis
    LogSoftmax      log_softmax     | x                 | axis
    LayerNorm       layer_norm      | x weight bias     | axis eps
    RMSNorm         rms_norm        | x weight          | axis eps
    BatchNorm       batch_norm      | x mean var weight bias | axis eps

    ReduceSum       sum             | x axis            | keep_dims=keepdims
    ReduceMean      mean            | x axis            | keep_dims=keepdims
    ReduceProd      prod            | x axis            | keep_dims=keepdims
    ReduceMax       max             | x axis            | keep_dims=keepdims
    ReduceMin       min             | x axis            | keep_dims=keepdims
    ReduceAny       any             | x axis            | keep_dims=keepdims
    ReduceAll       all             | x axis            | keep_dims=keepdims
    ReduceVar       var             | x axis            | ddof keep_dims=keepdims
    ReduceStd       std             | x axis            | ddof keep_dims=keepdims
    LogSumExp       logsumexp       | x axis            | keep_dims=keepdims
    Norm            norm            | x axis            | ord keep_dims=keepdims
    Argmax          argmax          | x                 | axis keep_dims=keepdims
    Argmin          argmin          | x                 | axis keep_dims=keepdims
    CumSum          cumsum          | x axis            |
    CumProd         cumprod         | x axis            |

    Reshape         reshape         | x shape           |
    Ravel           ravel           | x                 |
    Transpose       transpose       | x axes            |
    SwapAxes        swapaxes        | x axis1 axis2     |
    MoveAxis        moveaxis        | x source destination |
    ExpandDims      expand_dims     | x axis            |
    Squeeze         squeeze         | x                 | axis
    BroadcastTo     broadcast_to    | x                 | shape
    Concat          concat          | arrays            | axis
    Stack           stack           | arrays            | axis
    Split           split           | x                 | axis output_num=sections
    Unstack         unstack         | x                 | axis
    Tile            tile            | x reps            |
    Repeat          repeat          | x repeats         | axis
    Flip            flip            | x                 | axis
    Roll            roll            | x                 | shift axis
    Pad             pad             | x                 | paddings=pad_width mode value=constant_values
    Tril            tril            | x                 | diagonal=k
    Triu            triu            | x                 | diagonal=k
    Diag            diag            | x                 | diagonal=k
    Diagonal        diagonal        | x                 | offset axis1 axis2

    MatMul          matmul          | x y               |
    BatchMatMul     matmul          | x y               |
    Dot             dot             | x y               |
    Inner           inner           | x y               |
    Outer           outer           | x y               |
    TensorDot       tensordot       | x y               | axes
    Einsum          einsum          | operands          | equation=subscripts
    Linear          linear          | x w b             |
    Trace           trace           | x                 | offset axis1 axis2

    Gather          gather          | x indices axis    |
    Take            take            | x indices         | axis
    TakeAlongAxis   take_along_axis | x indices         | axis
    GatherElements  gather_elements | x indices         | axis
    GatherNd        gather_nd       | x indices         |
    Scatter         scatter         | x indices updates | axis reduce
    ScatterNd       scatter_nd      | x indices updates | reduce
    IndexPut        index_put       | x indices values  | accumulate
    Embedding       embedding       | indices table     |
    OneHot          one_hot         | indices depth on_value off_value | axis dtype
    MaskedFill      masked_fill     | x mask value      |
    MaskedSelect    masked_select   | x mask            |
    NonZero         nonzero         | x                 |
    Sort            sort            | x                 | axis
    ArgSort         argsort         | x                 | axis
    TopK            topk            | x k               | axis largest sorted
    Unique          unique          | x                 | return_index return_inverse return_counts
    SearchSorted    searchsorted    | x v               | side

    Zeros           zeros           | shape dtype       |
    Ones            ones            | shape dtype       |
    Fill            full            | dtype shape fill_value |
    ZerosLike       zeros_like      | x                 |
    OnesLike        ones_like       | x                 |
    FullLike        full_like       | x fill_value      |
    Eye             eye             | N M dtype         |
    Arange          arange          | start stop step   | dtype
    LinSpace        linspace        | start stop num    |

    Identity        identity        | x                 |
    StopGradient    stop_gradient   | x                 |
    Depend          depend          | x after           |
    Shape           shape           | x                 |
    Rank            ndim            | x                 |
    Size            size            | x                 |
    DType           dtype           | x                 |

    Conv1d          conv1d          | x w b             | stride padding dilation groups
    Conv2d          conv2d          | x w b             | stride padding dilation groups
    MaxPool1d       max_pool1d      | x                 | kernel_size stride padding dilation ceil_mode
    MaxPool2d       max_pool2d      | x                 | kernel_size stride padding dilation ceil_mode
    AvgPool1d       avg_pool1d      | x                 | kernel_size stride padding ceil_mode count_include_pad
    AvgPool2d       avg_pool2d      | x                 | kernel_size stride padding ceil_mode count_include_pad
    Interpolate     interpolate     | x                 | size scale mode align_corners

    RandomBits      random_bits     | key shape         |
    RandomUniform   random_uniform  | key shape         | low high dtype
    RandomNormal    random_normal   | key shape         | mean std dtype
    Dropout         dropout         | x key             | p training
    SplitKey        split_key       | key num           |
    FoldIn          fold_in         | key data          |
"""


def _read(text: str) -> dict[str, tuple[Spelling, ...]]:
    found: dict[str, tuple[Spelling, ...]] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        head, call, constructor = (part.strip() for part in line.split("|"))
        name, row = head.split()
        found[row] = (*found.get(row, ()), ops_class(name, call, constructor))
    return found


SPELLINGS: Final = _read(_CLASSES)
