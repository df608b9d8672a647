"""Roles: which GPUs of a cluster serve which model, whole or one half of it."""

from whichgpu.decide.roles.answer import Design, DesignsAnswer, IdleGpus, ModelRoles, RoleGroup, RolesAnswer
from whichgpu.decide.roles.asked import Kind, Served
from whichgpu.decide.roles.assign import assign_roles
from whichgpu.decide.roles.designs import designs

__all__ = [
    "Design",
    "DesignsAnswer",
    "IdleGpus",
    "Kind",
    "ModelRoles",
    "RoleGroup",
    "RolesAnswer",
    "Served",
    "assign_roles",
    "designs",
]
