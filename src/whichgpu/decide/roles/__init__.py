"""Roles of GPUs: which serve which model, and as prefill workers, decode workers or both."""

from whichgpu.decide.roles.assign import assign_roles
from whichgpu.decide.roles.cluster import GpuKind, ModelLoad
from whichgpu.decide.roles.designs import designs
from whichgpu.decide.roles.roles_answer import Design, DesignsAnswer, IdleGpus, ModelRoles, RoleGroup, RolesAnswer

__all__ = [
    "Design",
    "DesignsAnswer",
    "GpuKind",
    "IdleGpus",
    "ModelLoad",
    "ModelRoles",
    "RoleGroup",
    "RolesAnswer",
    "assign_roles",
    "designs",
]
